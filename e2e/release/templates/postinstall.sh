#!/bin/sh
# AppArmor 4 can forbid user namespaces to programs without a profile, as Ubuntu does since 24.04: scripts of skills
# run in them. An older AppArmor does not read the profile, and needs none.
set -e
# dpkg sets it when it installs into another directory.
root=${DPKG_ROOT:-}
if [ -e "$root/etc/apparmor.d/abi/4.0" ]; then
  # Changes of an administrator belong into /etc/apparmor.d/local/skillsd.
  install -m 0644 "$root/usr/share/skillsd/apparmor" "$root/etc/apparmor.d/skillsd"
  if [ -z "$root" ] && [ -d /sys/kernel/security/apparmor ] && command -v apparmor_parser >/dev/null; then
    apparmor_parser --replace --write-cache /etc/apparmor.d/skillsd ||
      echo "skillsd: the AppArmor profile is not loaded; skillsd doctor shows whether scripts can run" >&2
  fi
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
