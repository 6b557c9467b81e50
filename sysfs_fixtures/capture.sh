#!/bin/sh
# Copies what bwagent reads of /sys and /proc (README.md) into the new folder DIR, which `bwagent probe --replay` reads:
#
#     sh capture.sh DIR && tar -czf DIR.tgz DIR
#
# It sends no packets: `bwagent capture` has the far ends of InfiniBand ports, by SMPs and the subnet administrator, too.
# Needs a POSIX shell (BusyBox will do), and root for device/vpd. Links are copied, not followed. ROOT=/host reads /host/sys.
set -eu
export LC_ALL=C
case ${1-} in
'' | -*) echo "usage: sh capture.sh DIR" >&2; exit 2 ;;
esac
top=$(cd -- "${ROOT:-/}" && pwd -P) || exit 1
if [ ! -d "$top/sys" ]; then echo "capture.sh: $top/sys: No such directory" >&2; exit 1; fi
if [ -e "$1" ] || [ -L "$1" ]; then echo "capture.sh: $1: File exists" >&2; exit 1; fi
mkdir -- "$1" || exit 1
out=$(cd -- "$1" && pwd -P)
cd -- "$top"
errors=

note() { # MESSAGE PATH: note a read that failed, by its errno
	case $1 in
	*"No space"*) echo "$1" >&2; exit 1 ;;
	*"No such file"* | *[\"\\]*) return ;;
	*"nvalid arg"*) errno=EINVAL ;;
	*"ermission den"*) errno=EACCES ;;
	*"ot permitted"*) errno=EPERM ;;
	*"ot supported"*) errno=EOPNOTSUPP ;;
	*"No such device") errno=ENODEV ;;
	*) errno=EIO ;;
	esac
	errors="$errors${errors:+,}
    \"$2\": \"$errno\""
}

copy() { # PATH...: copy links and files, and the names of folders, to where they really are
	for path; do
		if [ ! -e "$path" ] && [ ! -L "$path" ]; then continue; fi
		folder=$top/${path%/*}
		case $path in sys/*) folder=$(cd -P "$folder" && pwd -P) ;; esac # /proc/net is another one for each process
		folder=$out/${folder#"$top"} copied=$folder/${path##*/}
		[ -d "$folder" ] || mkdir -p "$folder"
		if [ -L "$path" ]; then
			[ -L "$copied" ] || cp -P "$path" "$copied" # over a link to a folder it would go into that
		elif [ -d "$path" ]; then
			if message=$({ ls "$path" >/dev/null; } 2>&1); then mkdir -p "$copied"; else note "$message" "$path"; fi
		elif ! message=$({ cat "$path" >"$copied"; } 2>&1); then
			rm -f "$copied"
			note "$message" "$path"
		fi
	done
}

copy proc/net/route proc/net/ipv6_route proc/net/dev proc/sys/kernel/random/boot_id
# All next hops of the default routes, of which /proc/net/route has the first only. BusyBox's ip knows no -j.
if [ -z "${ROOT-}" ]; then
	routes=
	for family in -4 -6; do
		more=$(ip -j $family route show table main default 2>/dev/null) || more=
		more=${more#\[} more=${more%\]}
		routes="$routes${more:+${routes:+, }$more}"
	done
	if [ -n "$routes" ]; then printf '[%s]\n' "$routes" >"$out/routes.json"; fi
fi
copy sys/class/dmi/id/sys_vendor sys/class/dmi/id/product_name proc/cpuinfo
copy sys/class/infiniband sys/class/net sys/bus/pci/devices
for dev in sys/class/infiniband/*; do
	copy "$dev" "$dev/device"
	for name in node_type node_guid sys_image_guid hca_type board_id fw_ver parent uevent ports \
		device/driver device/physfn device/numa_node device/uevent device/net; do copy "$dev/$name"; done
	for net in "$dev"/device/net/*; do copy "$net" "$net/dev_port" "$net/dev_id" "$net/phys_port_name"; done
	counters=counters/link_downed
	guid=$(cat "$dev/sys_image_guid" 2>/dev/null) || guid=
	same=$(cat sys/class/infiniband/*/sys_image_guid 2>/dev/null | grep -cxF -- "$guid") || same=0
	# Three functions of one GUID may manage NVSwitches, if they are InfiniBand, or unreadable.
	if [ "$same" -ge 3 ] && cat "$dev"/ports/*/link_layer 2>&1 | grep -v 'No such file' | grep -Eq '^InfiniBand|: '; then
		copy "$dev/device/vpd"
		found=0
		grep -q SW_MNG "$dev/device/vpd" 2>/dev/null || found=$?
		# The counters of a function that manages NVSwitches fail, and write to the kernel log.
		if [ -e "$dev/device/vpd" ] && [ $found != 1 ]; then counters=; fi
	fi
	for port in "$dev"/ports/*; do
		copy "$port"
		for name in link_layer state phys_state rate has_smi gids/0 gid_attrs/ndevs/0 $counters; do copy "$port/$name"; done
	done
done
for net in sys/class/net/*/; do
	net=${net%/}
	copy "$net" "$net"/lower_* "$net"/upper_* "$net/device/driver" "$net/device/physfn"
	for name in device master address operstate speed carrier_changes carrier_up_count phys_port_name bonding_slave \
		bonding/slaves bonding_slave/state bonding_slave/mii_status bonding_slave/perm_hwaddr \
		bridge/group_fwd_mask brport/group_fwd_mask; do copy "$net/$name"; done
done
for pci in sys/bus/pci/devices/*; do
	copy "$pci" "$pci/driver" "$pci/physfn" "$pci"/infiniband/*
	for name in class vendor device subsystem_vendor subsystem_device uevent numa_node; do copy "$pci/$name"; done
	for name in link_speed link_width; do copy "$pci/current_$name" "$pci/max_$name"; done
done

cd "$out"
printf '{"errors": {%s}}\n' "$errors" >errors.json
printf '{"hostname": "%s"}\n' "$(uname -n)" >host.json
printf '{"schema": 1, "agent": null, "kernel": "%s", "time": "%s", "boot_id": "%s", "anonymized": []}\n' \
	"$(uname -r)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(cat proc/sys/kernel/random/boot_id)" >meta.json
