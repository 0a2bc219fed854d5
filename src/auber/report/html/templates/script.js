"use strict";
(() => {
  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("auber-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("auber-theme", theme); } catch { /* a page from disk may not */ } };
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  function startTheme() {
    const button = document.getElementById("theme");
    const show = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); };
    button.hidden = false;
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; remember(root.dataset.theme); show(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
    show();
  }

  // The titles of marks become labels, so that no second tip of the browser's own stands beside ours.
  function startTips() {
    const tip = document.getElementById("tip");
    let shown = null;
    const hide = () => { shown = null; tip.hidden = true; };
    const show = (mark) => {
      shown = mark;
      tip.textContent = mark.getAttribute("aria-label");
      tip.hidden = false;
      const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
      const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
      const above = box.top - own.height - 8;
      tip.style.left = `${left}px`;
      tip.style.top = `${above > 4 ? above : Math.min(box.bottom + 8, innerHeight - own.height - 4)}px`;
    };
    for (const drawing of document.querySelectorAll("svg")) {
      const marks = [...drawing.querySelectorAll("title")].map((title) => {
        const mark = title.parentElement;
        mark.setAttribute("role", "img");
        mark.setAttribute("aria-label", title.textContent);
        mark.setAttribute("tabindex", "-1");
        title.remove();
        return mark;
      });
      if (!marks.length) continue;
      drawing.setAttribute("role", "group");
      marks[0].setAttribute("tabindex", "0");
      const columns = Number(drawing.dataset.columns) || 1;
      const place = new Map(marks.map((mark, index) => [mark, index]));
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
      drawing.addEventListener("mouseover", (event) => place.has(event.target) ? show(event.target) : hide());
      drawing.addEventListener("mouseleave", hide);
      drawing.addEventListener("focusin", (event) => place.has(event.target) && show(event.target));
      drawing.addEventListener("focusout", hide);
      drawing.addEventListener("keydown", (event) => {
        if (event.key === "Escape") return hide();
        const next = marks[place.get(event.target) + steps[event.key]];
        if (!next) return;
        event.preventDefault();
        event.target.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      });
    }
    // A mark that gets the focus may have to be scrolled to: its tip goes along.
    addEventListener("scroll", () => shown && show(shown), { passive: true, capture: true });
  }

  addEventListener("DOMContentLoaded", () => { startTheme(); startTips(); });
  addEventListener("beforeprint", () => { for (const folded of document.querySelectorAll("details")) folded.open = true; });
})();
