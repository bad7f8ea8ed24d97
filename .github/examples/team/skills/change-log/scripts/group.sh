#!/bin/sh
# Groups lines "part: what" by part.
sort -u | awk -F': ' 'NF > 1 { if ($1 != last) { print "## " $1; last = $1 } sub(/^[^:]*: /, ""); print "- " $0 }'
