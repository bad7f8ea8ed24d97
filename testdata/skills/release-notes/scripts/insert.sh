#!/usr/bin/env bash
# insert.sh FILE: puts the text on stdin above the first "## " heading of FILE, or at its end.
set -euo pipefail

if (($# != 1)); then
  echo "usage: insert.sh FILE <notes.md" >&2
  exit 2
fi
file=$1
if [[ ! -f $file ]]; then
  echo "insert.sh: no such file: $file" >&2
  exit 1
fi
notes=$(cat)
if [[ -z $notes ]]; then
  echo "insert.sh: nothing on stdin" >&2
  exit 1
fi

draft=$(mktemp "$file.XXXXXX")
trap 'rm -f "$draft"' EXIT
before='' after='' found=''
while IFS= read -r line || [[ -n $line ]]; do
  if [[ -z $found && $line == '## '* ]]; then found=1; fi
  if [[ -n $found ]]; then after+=$line$'\n'; else before+=$line$'\n'; fi
done <"$file"
printf '%s%s\n\n%s' "$before" "$notes" "$after" >"$draft"
cat "$draft" >"$file"
echo "inserted ${#notes} characters into $file"
