#!/usr/bin/env python3
# /// script
# dependencies = ["tabulate"]
# ///
"""Draws the CSV of standard input as a table."""

import csv
import sys

from tabulate import tabulate

rows = list(csv.reader(sys.stdin))
print(tabulate(rows[1:], headers=rows[0] if rows else []))
