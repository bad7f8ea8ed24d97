# Sourced by collect.sh.

# classify SUBJECT sets kind and text from a Conventional Commits subject.
classify() {
  local subject=$1 head scope
  kind=other text=$subject
  [[ $subject =~ ^([a-zA-Z]+)(\(([^()]*)\))?(!)?:[[:space:]]+(.+)$ ]] || return 0
  head=${BASH_REMATCH[1],,} scope=${BASH_REMATCH[3]} text=${BASH_REMATCH[5]}
  case $head in
    feat | feature) kind=added ;;
    fix | bugfix | revert) kind=fixed ;;
    perf) kind=performance ;;
    chore | ci | test | tests | build | style | refactor | docs | doc) kind=housekeeping ;;
    *) text=$subject ;;
  esac
  if [[ -n ${BASH_REMATCH[4]} ]]; then kind=breaking; fi
  if [[ -n $scope && $text != "$subject" ]]; then text="$scope: $text"; fi
}
