#!/bin/sh
# What runs as process 1 of a machine of its own: containerd, then the kubelet (machine.py).
#
#   machine.sh FOLDER KUBELET-ARGUMENT ...
#
# The mounts are seen in here only, and go with the last process. Whatever the two keep at fixed places they keep in
# memory, and the kernel's settings that a kubelet sets to its own liking stay as the host has them.
set -eu
folder=$1
shift
mount --make-rprivate /
for place in /run /var/lib /var/log; do
    mount -t tmpfs tmpfs "$place"
done
mkdir /run/sysctl
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    file=/run/sysctl/$(basename "$setting")
    cat "/proc/sys/$setting" >"$file"
    mount --bind "$file" "/proc/sys/$setting"
done

containerd --config "$folder/containerd.toml" >"$folder.containerd.log" 2>&1 &
while ! ctr --connect-timeout 1s version >/dev/null 2>&1; do
    kill -0 $!
    sleep 0.1
done
for image in "$folder"/images/*.tar; do
    [ -e "$image" ] || continue # the machine was on before, and has them
    ctr -n k8s.io images import "$image"
    rm "$image"
done
exec "$@"
