#!/bin/sh
# stats.sh [FILE...]: lines, words, characters and sentences of each file, or of stdin.
set -eu

count() {
  awk -v name="$1" '
    {
      lines++; words += NF; characters += length($0) + 1
      sentences += gsub(/[.!?]+([ \t]|$)/, "")
    }
    END {
      printf "%s: %d lines, %d words, %d characters, %d sentences\n", name, lines, words, characters, sentences
    }'
}

case ${1-} in
  -?*) echo "usage: stats.sh [FILE...]" >&2; exit 2 ;;
esac
if [ $# -eq 0 ]; then
  count stdin
  exit 0
fi
status=0
for file; do
  if [ -f "$file" ] && [ -r "$file" ]; then
    count "$file" <"$file"
  else
    echo "stats.sh: cannot read $file" >&2
    status=1
  fi
done
exit $status
