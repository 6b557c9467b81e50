#!/bin/busybox sh
# shellcheck shell=dash
# The emulated machine's first process: lay the host's root under a throw-away layer, run the script in it, go down.
#
# machine.py writes /share/.machine/{here,script} and reads {started,output,status}; `here` is the path that the shared
# folder has on the host, and gets in here too. Kernel modules load themselves: the kernel calls /sbin/modprobe of this
# file system when somebody asks for a link type or a protocol that it does not have yet.
export PATH=/bin:/sbin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /lower /upper /host /share
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
modprobe -a virtio_pci 9pnet_virtio 9p overlay
hostname emulated
ip link set lo up

plan9=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o "ro,cache=loose,$plan9" host /lower
mount -t 9p -o "$plan9" share /share # uncached: what is written is on the host at once
here=$(cat /share/.machine/here)

mount -t tmpfs upper /upper
mkdir /upper/data /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work root /host
for folder in proc sys dev; do
    mount --bind "/$folder" "/host/$folder"
done
mkdir -p /host/dev/shm /host/dev/pts /host/lib/modules "/host$here"
mount -t tmpfs shm /host/dev/shm
mount -t devpts pts /host/dev/pts
mount -t tmpfs run /host/run # the host's sockets and pid files mean nothing in here
mount --bind /lib/modules /host/lib/modules
mount --bind /share "/host$here"

: >/share/.machine/started
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
chroot /host /bin/bash "$here/.machine/script" </dev/null >/share/.machine/output 2>&1
echo $? >/share/.machine/status
/bin/reboot -f # QEMU is told not to, and ends
