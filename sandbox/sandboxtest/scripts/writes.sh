# Argument: the differences that are tolerated, separated by commas.
for d in / /usr /usr/bin /usr/local/bin /usr/lib /etc /etc/ssl /var /var/tmp /opt /root /home /run /srv /lib /bin /sbin /proc /proc/sys /sys /dev /skill /skill/scripts; do
	[ -d "$d" ] || continue
	(: >"$d/.probe") 2>/dev/null && { echo "BREACH wrote in $d"; rm -f "$d/.probe"; }
done
for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger /proc/sys/kernel/hostname \
	/proc/sys/vm/overcommit_memory /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/ip_unprivileged_port_start \
	/etc/passwd /dev/kmsg /dev/mem; do
	[ -e "$f" ] && (exec 3>>"$f") 2>/dev/null && echo "BREACH opens $f for writing"
done
for n in /dev/*; do
	[[ $1 == *kernel* ]] && break
	case $n in /dev/null | /dev/zero | /dev/full | /dev/random | /dev/urandom | /dev/fd | /dev/shm | /dev/stdin | /dev/stdout | /dev/stderr) ;; *) echo "BREACH device $n" ;; esac
done
while read -r _ _ _ _ at options _; do
	[[ $1 == *kernel* ]] && break
	case $at in
	/tmp | /dev/shm | /out | /workspace) ;;
	/dev/null | /dev/zero | /dev/full | /dev/random | /dev/urandom)
		case $1,$options in *devices* | *,ro,* | *,ro) ;; *) echo "BREACH $at is mounted $options" ;; esac ;;
	*) case $options in ro,* | ro) ;; *) echo "BREACH $at is mounted $options" ;; esac ;;
	esac
	case $options in *nosuid*) ;; *) echo "BREACH $at is mounted with set-id" ;; esac
	case $at in
	/dev/null | /dev/zero | /dev/full | /dev/random | /dev/urandom) ;;
	*) case $options in *nodev*) ;; *) [ "$at" -ef /dev/null ] || echo "BREACH $at is mounted with devices" ;; esac ;;
	esac
done </proc/self/mountinfo
echo x >/tmp/a && echo x >/dev/shm/a && echo x >/out/a && echo x >/dev/null && echo to-stdout >/dev/stdout && echo done
