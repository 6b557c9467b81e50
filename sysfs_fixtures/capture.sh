#!/bin/sh
# Copies what bwagent reads of /sys and /proc (README.md) into the new folder DIR, which `bwagent probe --replay` reads:
#
#     sh capture.sh [-m] DIR && tar -czf DIR.tgz DIR
#
# With ethtool and devlink it asks the drivers about links and health, with -m (root) also for the pages of the
# transceivers, which clears their alarms. It sends no packets: `bwagent capture` has the far ends of InfiniBand ports, by SMPs and the subnet administrator, too.
# Needs a POSIX shell (BusyBox will do), and root for device/vpd. Links are copied, not followed. ROOT=/host reads /host/sys.
set -eu
export LC_ALL=C
modules=
if [ "${1-}" = -m ]; then modules=1; shift; fi
case ${1-} in
'' | -*) echo "usage: sh capture.sh [-m] DIR" >&2; exit 2 ;;
esac
if [ -n "$modules" ]; then
	if [ "$(id -u)" != 0 ]; then echo "capture.sh: -m: transceivers are read by root only" >&2; exit 1; fi
	if ! command -v ethtool >/dev/null; then echo "capture.sh: -m: ethtool: not found" >&2; exit 1; fi
fi
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
	counters='counters hw_counters'
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
		for name in link_layer state phys_state rate has_smi gids/0 gid_attrs/ndevs/0; do copy "$port/$name"; done
		for name in $counters; do copy "$port/$name" "$port/$name"/*; done
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

page() { # NETDEV NAME OFFSET PAGE: add the hex of a page of its module to `pages`, or set `error`
	printed=$(ethtool -m "$1" raw on offset "$3" length 128 page "$4" 2>"$out/error" | od -An -v -tx1 | tr -d ' \n')
	if [ -n "$printed" ]; then
		pages="$pages${pages:+, }\"$2\": \"$printed\""
	elif [ -z "$error" ]; then
		error=$(head -n 1 "$out/error" | tr -d '"\\\t')
		case $error in *'bad command'*) error='Operation not supported' ;; esac # by this driver, or this ethtool
		error=${error#netlink error: }; error=\"${error:-ethtool prints nothing}\"
	fi
}

module() { # NETDEV: add the row of its module to `rows`
	pages= error=
	page "$1" lower 0 0
	case $printed in 0c* | 0d* | 11* | 18* | 19* | 1b* | 1e* | 1f* | 20*) # SFF-8024, table 4-1: SFF-8636, or CMIS
		lower=$printed
		page "$1" 00h 128 0
		case $lower in 0* | 11* | ????[89a-f]*) ;; *) # CMIS whose memory is not flat
			# Passive copper may not tell so: octet 85 is 3.
			if [ "$(echo "$lower" | cut -c171-172)" != 03 ]; then page "$1" 01h 128 1; page "$1" 11h 128 17; fi ;;
		esac ;;
	esac
	rows="$rows${rows:+,}
  {\"netdev\": \"$1\", \"pages\": {$pages}, \"error\": ${error:-null}}"
	rm "$out/error"
}

whole() { # FILE: write the JSON object that a program prints, if it comes to its end
	printed=$(cat)
	case $printed in \{*\}) mkdir -p "${1%/*}"; printf '%s\n' "$printed" >"$1" ;; esac
}

if [ -z "${ROOT-}" ] && command -v ethtool >/dev/null; then
	rows=
	mkdir "$out/ethtool"
	for net in sys/class/infiniband/*/device/net/*/; do
		[ -d "$net" ] || continue
		net=${net%/} net=${net##*/}
		ethtool "$net" 2>/dev/null | grep -E 'Link (detected|Down Events):' >"$out/ethtool/$net.txt" || :
		if [ -n "$modules" ]; then module "$net"; fi
	done
	if [ -n "$modules" ]; then printf '{"modules": [%s]}\n' "$rows" >"$out/modules.json"; fi
fi
if [ -z "${ROOT-}" ] && command -v devlink >/dev/null; then
	devlink -j health show 2>/dev/null | whole "$out/devlink/health.json"
	devlink -j dev info 2>/dev/null | sed 's/\(serial_number": *"\)[^"]*/\1/g' | whole "$out/devlink/info.json"
fi

cd "$out"
printf '{"errors": {%s}}\n' "$errors" >errors.json
printf '{"hostname": "%s"}\n' "$(uname -n)" >host.json
printf '{"schema": 1, "agent": null, "kernel": "%s", "time": "%s", "boot_id": "%s", "anonymized": []}\n' \
	"$(uname -r)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(cat proc/sys/kernel/random/boot_id)" >meta.json
