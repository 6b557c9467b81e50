#!/bin/sh
# Unpack Debian 12's kernel for the emulated machine into the cache; quick when it is there already.
#
# Nothing is installed, so neither root nor a boot loader is needed. The -cloud- kernel will not do: it has no rxe and
# no 9p. To move to a newer kernel, remove the folder that this prints.
set -eu
PATH=$PATH:/usr/sbin:/sbin # depmod, for users other than root
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bwagent/emulated
kernel=$cache/kernel

if [ -d "$kernel" ]; then
    echo "$kernel"
    exit
fi

image=$(apt-cache search --names-only '^linux-image-6\.1\.0-[0-9]+-amd64$' | cut -d' ' -f1 | sort -V | tail -n1)
if [ -z "$image" ]; then
    echo "apt knows no linux-image-6.1.0-*-amd64: this wants Debian 12 and 'apt-get update'" >&2
    exit 1
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"
apt-get -q -o APT::Sandbox::User="$(id -un)" download "$image" >&2
dpkg -x "$image"_*.deb kernel
depmod -b kernel "${image#linux-image-}"
mv -T kernel "$kernel" || [ -d "$kernel" ] # somebody else was faster
echo "$kernel"
