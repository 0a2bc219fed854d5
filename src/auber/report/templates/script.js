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

  // Titles become labels, so that the browser shows no second tip.
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
    for (const table of document.querySelectorAll("table.heads")) {
      const marks = [...table.querySelectorAll("td[title]")];
      for (const mark of marks) {
        mark.setAttribute("aria-label", mark.title);
        mark.setAttribute("tabindex", "-1");
        mark.removeAttribute("title");
      }
      marks[0].setAttribute("tabindex", "0");
      const columns = marks[0].parentElement.querySelectorAll("td").length;
      const place = new Map(marks.map((mark, index) => [mark, index]));
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
      table.addEventListener("mouseover", (event) => place.has(event.target) ? show(event.target) : hide());
      table.addEventListener("mouseleave", hide);
      table.addEventListener("focusin", (event) => place.has(event.target) && show(event.target));
      table.addEventListener("focusout", hide);
      table.addEventListener("keydown", (event) => {
        if (event.key === "Escape") return hide();
        const next = marks[place.get(event.target) + steps[event.key]];
        if (!next) return;
        event.preventDefault();
        event.target.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      });
    }
    // The tip follows a head that is scrolled to.
    addEventListener("scroll", () => shown && show(shown), { passive: true, capture: true });
  }

  addEventListener("DOMContentLoaded", () => { startTheme(); startTips(); });
})();
