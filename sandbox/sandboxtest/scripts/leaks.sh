# Everything the server holds is looked for here: variables, descriptors, shared memory.
env | grep -E 'planted-in-the-server' && echo "BREACH environment"
for p in /proc/[0-9]*; do tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -q planted-in-the-server && echo "BREACH environ of $p"; done
for f in /proc/self/fd/*; do
	n=${f##*/}
	case $n in 0 | 1 | 2 | 255) continue ;; esac
	[ -e "$f" ] && [ "$(readlink "$f")" != "/proc/$BASHPID/fd" ] && { t=$(readlink "$f"); case $t in /skill/* | /proc/*) ;; *) echo "BREACH descriptor $n: $t" ;; esac; }
done
for n in $(seq 3 300); do (head -c 9 <&"$n") 2>/dev/null | grep -q PLANTED && echo "BREACH reads descriptor $n"; done
[ "$(awk 'NR>1' /proc/sysvipc/shm | wc -l)" -gt 0 ] && echo "BREACH shared memory of the host"
for f in /proc/kcore /proc/kmsg /proc/vmcore /proc/sched_debug /proc/timer_list; do
	[ "$(timeout 1 head -c 1 "$f" 2>/dev/null | wc -c)" -gt 0 ] && echo "BREACH reads $f"
done
head -50 /proc/kallsyms 2>/dev/null | grep -qE '^[0-9a-f]*[1-9a-f][0-9a-f]* ' && echo "BREACH kernel addresses"
[ "$(cat /proc/keys 2>/dev/null | wc -c)" -gt 0 ] && echo "BREACH key rings"
[ -n "$BASH_ENV$ENV$LD_PRELOAD" ] && echo "BREACH loader variables"
tty -s && echo "BREACH terminal"
(: </dev/tty) 2>/dev/null && echo "BREACH controlling terminal"
[ "$(cat | wc -c)" = 0 ] || echo "BREACH standard input"
echo done
