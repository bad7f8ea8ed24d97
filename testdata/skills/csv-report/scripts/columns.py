"""Column statistics for summarize.py."""
import re
from collections import Counter

MISSING = {"", "na", "n/a", "null", "none", "-"}
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$")
INTEGER = re.compile(r"[+-]?\d{1,300}$")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?$")


class Column:
    """Facts about one column, gathered value by value."""

    def __init__(self, name):
        self.name = name
        self.values = Counter()
        self.missing = 0

    def add(self, value):
        value = value.strip()
        if value.lower() in MISSING:
            self.missing += 1
        else:
            self.values[value] += 1

    def kind(self):
        for name, pattern in (("integer", INTEGER), ("number", NUMBER), ("date", DATE)):
            if self.values and all(pattern.match(v) for v in self.values):
                return name
        return "text" if self.values else "empty"

    def report(self, top):
        kind = self.kind()
        facts = {"name": self.name, "type": kind, "missing": self.missing, "distinct": len(self.values)}
        if kind in ("integer", "number"):
            parse = int if kind == "integer" else float
            numbers = [(parse(v), n) for v, n in self.values.items()]
            count = sum(n for _, n in numbers)
            facts["min"] = min(v for v, _ in numbers)
            facts["max"] = max(v for v, _ in numbers)
            facts["mean"] = round(sum(v * n for v, n in numbers) / count, 4)
        elif kind == "date":
            facts["min"], facts["max"] = min(self.values), max(self.values)
        elif kind == "text":
            ranked = sorted(self.values.items(), key=lambda item: (-item[1], item[0]))
            facts["top"] = ranked[:top]
        return facts
