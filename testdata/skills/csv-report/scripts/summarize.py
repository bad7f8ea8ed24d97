#!/usr/bin/env python3
"""summarize.py [--json] [--delimiter C] [--top N] [FILE|-]: what is in a CSV file."""
import argparse
import csv
import io
import json
import os
import sys

from columns import Column

MAX_ROWS = 1_000_000
SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "assets", "sample.csv")


def read(path):
    if path == "-":
        data = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as f:
            data = f.read()
    return data.decode("utf-8-sig")


def guess_delimiter(header):
    return max(",;\t|", key=header.count)


def profile(text, delimiter, top):
    header = text.split("\n", 1)[0]
    rows = csv.reader(io.StringIO(text), delimiter=delimiter or guess_delimiter(header))
    names = next(rows, None)
    if not names:
        raise ValueError("the file is empty")
    columns = [Column(name.strip() or f"column {i}") for i, name in enumerate(names, 1)]
    count = ragged = 0
    truncated = False
    for row in rows:
        if not row:
            continue
        if count == MAX_ROWS:
            truncated = True
            break
        count += 1
        ragged += len(row) != len(columns)
        for column, value in zip(columns, row):
            column.add(value)
    return {"rows": count, "ragged": ragged, "truncated": truncated,
            "columns": [column.report(top) for column in columns]}


def cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")


def markdown(report):
    more = " (and more that were not read)" if report["truncated"] else ""
    print(f"{report['rows']} rows{more}, {report['ragged']} ragged, {len(report['columns'])} columns\n")
    print("| column | type | missing | distinct | facts |")
    print("|---|---|---|---|---|")
    for c in report["columns"]:
        if "top" in c:
            facts = ", ".join(f"{value} ({n})" for value, n in c["top"])
        else:
            facts = ", ".join(f"{key} {c[key]}" for key in ("min", "max", "mean") if key in c)
        print(f"| {cell(c['name'])} | {c['type']} | {c['missing']} | {c['distinct']} | {cell(facts)} |")


def main():
    parser = argparse.ArgumentParser(description="Say what is in a CSV file.")
    parser.add_argument("file", nargs="?", default=SAMPLE, help="CSV file, - for stdin (default: the sample)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--delimiter", help="field delimiter (default: guessed from the header)")
    parser.add_argument("--top", type=int, default=3, help="frequent values a text column")
    args = parser.parse_args()
    try:
        report = profile(read(args.file), args.delimiter, args.top)
    except (OSError, ValueError, TypeError, csv.Error) as err:
        print(f"summarize.py: {err}", file=sys.stderr)
        return 1
    if args.json:
        json.dump(report, sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        markdown(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
