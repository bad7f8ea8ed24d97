#!/bin/sh
# top-words.sh [-n COUNT] [FILE...]: the most frequent words of four letters or more.
set -eu

usage() {
  echo "usage: top-words.sh [-n COUNT] [FILE...]" >&2
  exit 2
}

top=10
while getopts n: flag; do
  case $flag in
    n) top=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
case $top in
  '' | *[!0-9]*) usage ;;
esac
for file; do
  if [ ! -f "$file" ] || [ ! -r "$file" ]; then
    echo "top-words.sh: cannot read $file" >&2
    exit 1
  fi
done

if [ $# -gt 0 ]; then cat -- "$@"; else cat; fi | awk -v top="$top" '
  {
    gsub(/[^A-Za-z]+/, " ")
    n = split(tolower($0), word, " ")
    for (i = 1; i <= n; i++) if (length(word[i]) >= 4) seen[word[i]]++
  }
  END {
    for (rank = 1; rank <= top; rank++) {
      best = ""
      for (w in seen) if (best == "" || seen[w] > seen[best] || (seen[w] == seen[best] && w < best)) best = w
      if (best == "") exit
      printf "%d %s\n", seen[best], best
      delete seen[best]
    }
  }'
