#!/bin/sh
# Build netdevsim for the kernel that fetch_kernel.sh has unpacked, and add it to that; quick when it is there already.
#
# Debian builds it for no amd64 kernel. It is a device without hardware whose health reporter can be broken
# (drivers/net/netdevsim/health.c). The packages are of the kernel's own version, 155 MB; nothing is installed.
set -eu
PATH=$PATH:/usr/sbin:/sbin # depmod, for users other than root
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bwagent/emulated
version=$(ls "$cache/kernel/lib/modules")
modules=$cache/kernel/lib/modules/$version

[ -e "$modules/extra/netdevsim.ko" ] && exit
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"
headers=linux-headers-$version
release=$(apt-cache show "$headers" | sed -n 's/^Version: //p;/^Version/q')
if [ -z "$release" ]; then
    echo "apt knows no $headers: remove $cache/kernel and run fetch_kernel.sh" >&2
    exit 1
fi
apt-get -q -o APT::Sandbox::User="$(id -un)" download "$headers" "${headers%-*}-common=$release" \
    "linux-kbuild-6.1=$release" "linux-source-6.1=$release" >&2
for package in linux-[!s]*.deb; do
    dpkg -x "$package" .
done
echo "include $work/usr/src/${headers%-*}-common/Makefile" >"usr/src/$headers/Makefile" # it has /usr/src
dpkg --fsys-tarfile linux-source-6.1_*.deb | tar -xO ./usr/src/linux-source-6.1.tar.xz |
    tar -xJ --strip-components=3 linux-source-6.1/drivers/net/netdevsim
make -s -C "usr/src/$headers" M="$work/netdevsim" CONFIG_NETDEVSIM=m modules >&2
strip -g netdevsim/netdevsim.ko
mkdir -p "$modules/extra"
mv netdevsim/netdevsim.ko "$modules/extra/"
depmod -b "$cache/kernel" "$version"
