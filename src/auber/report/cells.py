"""Names that moved to `auber.report.analysis` and `auber.report.records`."""

from auber.report.analysis import group as group
from auber.report.records import CONTROL as CONTROL
from auber.report.records import CONTROLS as CONTROLS
from auber.report.records import SUBJECT as SUBJECT
from auber.report.records import is_ablation as is_ablation
from auber.report.records import ordered as ordered
