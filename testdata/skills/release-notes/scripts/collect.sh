#!/usr/bin/env bash
# collect.sh [-v VERSION] [-d DATE] [-f FILE|-] [SUBJECT...]: commit subjects grouped as Markdown.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/classify.sh"

usage() {
  echo "usage: collect.sh [-v VERSION] [-d DATE] [-f FILE|-] [SUBJECT...]" >&2
  exit 2
}

version=Unreleased date='' file=''
while getopts v:d:f: flag; do
  case $flag in
    v) version=$OPTARG ;;
    d) date=$OPTARG ;;
    f) file=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))

subjects=("$@")
if [[ -n $file ]]; then
  [[ $file != - ]] || file=/dev/stdin
  [[ -r $file ]] || { echo "collect.sh: cannot read $file" >&2; exit 1; }
  while IFS= read -r line || [[ -n $line ]]; do
    line=${line%$'\r'}
    [[ -z $line ]] || subjects+=("$line")
  done <"$file"
fi
((${#subjects[@]} > 0)) || usage

declare -A groups=() seen=()
housekeeping=0
for subject in "${subjects[@]}"; do
  classify "$subject"
  if [[ $kind == housekeeping ]]; then
    housekeeping=$((housekeeping + 1))
  elif [[ -z ${seen[$kind:$text]:-} ]]; then
    seen[$kind:$text]=1
    groups[$kind]+="- $text"$'\n'
  fi
done

printf '## %s%s\n' "$version" "${date:+ ($date)}"
for kind in breaking added fixed performance other; do
  [[ -n ${groups[$kind]:-} ]] || continue
  printf '\n### %s\n\n%s' "${kind^}" "${groups[$kind]}"
done
printf '\n%d subjects, %d of them housekeeping\n' "${#subjects[@]}" "$housekeeping"
