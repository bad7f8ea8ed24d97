set -euo pipefail
d=$(mktemp -d)
cd "$d"
printf '3\n1\n2\n' >a
diff <(sort -n a) <(printf '1\n2\n3\n')
awk '{s+=$1} END{exit s!=6}' a
tar czf a.tgz a
tar tzf a.tgz | grep -qx a
find . -name a -print0 | xargs -0 wc -l | grep -q 3
sed -i s/3/4/ a
cp -p a b && chmod 755 b && mv b c && ln c d && ln -s c e && mkfifo p
(cat p >/dev/null &) && echo x >p
. /skill/scripts/lib.sh
from_library
ls /skill | grep -qx scripts
cp -r /skill copy
cmp copy/scripts/works.sh /skill/scripts/works.sh
date +%Y >/dev/null
id -un >/dev/null
[ "$(id -u)" -ne 0 ] && [ -w "$HOME" ] && [ -x /skill/scripts/works.sh -o -r /skill/scripts/works.sh ]
echo done
