#!/bin/sh
set -e
# dpkg sets it when it installs into another directory.
root=${DPKG_ROOT:-}
case "$1" in
# Debian and RPM, when the package goes and is not replaced by another version.
remove | purge | 0)
  if [ -e "$root/etc/apparmor.d/skillsd" ]; then
    if [ -z "$root" ] && [ -d /sys/kernel/security/apparmor ] && command -v apparmor_parser >/dev/null; then
      apparmor_parser --remove /etc/apparmor.d/skillsd || true
    fi
    rm -f "$root/etc/apparmor.d/skillsd"
  fi
  ;;
esac
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
