# Arguments: "root" when the server is, and then must have dropped its groups; the differences that are
# tolerated.
s=$(cat /proc/self/status)
[ "$1" = root ] && [ -n "$(awk '$1 == "Groups:" { print $2 }' /proc/self/status)" ] && echo "BREACH groups of the server"
for c in CapInh CapPrm CapEff CapBnd CapAmb; do
	grep -q "^$c:.0000000000000000" <<<"$s" || echo "BREACH $(grep "^$c" <<<"$s")"
done
grep -q '^NoNewPrivs:.1' <<<"$s" || echo "BREACH no_new_privs is off"
grep -q '^Seccomp:.2' <<<"$s" || echo "BREACH no filter"
[ "$(id -u)" = 0 ] && echo "BREACH uid 0"
[ "$(id -g)" = 0 ] && echo "BREACH gid 0"
grep -qw 0 <<<"$(id -G)" && echo "BREACH group 0"
cp /usr/bin/id /tmp/i && chmod 6755 /tmp/i 2>/dev/null && echo "BREACH chmod set-id"
chmod 2755 /tmp 2>/dev/null && echo "BREACH chmod setgid"
chrt -f 50 true 2>/dev/null && echo "BREACH real-time scheduling"
[[ $2 != *kernel* ]] && renice -n -10 $$ >/dev/null 2>&1 && echo "BREACH negative nice"
unshare -U true 2>/dev/null && echo "BREACH user namespace"
unshare -Ur mount -t tmpfs t /tmp 2>/dev/null && echo "BREACH mount in a user namespace"
mount -t tmpfs t /tmp 2>/dev/null && echo "BREACH mount"
mount -o remount,rw /skill 2>/dev/null && echo "BREACH remount"
umount -l /skill 2>/dev/null && echo "BREACH umount"
hostname changed 2>/dev/null && echo "BREACH hostname"
echo done
