"""Changes of a node inside the emulated machine, and a look at it after each.

A look leaves NAME.probe, the report of `probe`, NAME.complaints, its standard error, and what rdma,
ip and /sys/class/net said at the same moment.
"""

from __future__ import annotations

from tests.support.qemu.capture_soft_roce import WIRING

TOUR = (
    WIRING
    + r"""
look() { # NAME FLAG...
    name=$1
    shift
    bwagent "$name.probe" "$name.complaints" probe --dry-run --no-wait -o json "$@" ||
        echo "$name: $?" >>failed
    rdma -j link show >"$name.rdma"
    ip -j link show >"$name.ip"
    grep -s . /sys/class/net/*/speed >"$name.speeds" || : # EINVAL where the device is down
}

look no-class

# But for one look no NIC carries the default route, so the front end is not known.
BACKEND="--backend-device rxe*"
cable eth0 00
cable eth1 01
ip link add eth2 address 02:00:00:00:01:02 type dummy # has no speed
ip link set eth2 up
for number in 0 1 2; do rdma link add "rxe$number" type rxe netdev "eth$number"; done
look up $BACKEND
look chosen --exclude-device 'rxe[2-9]' --backend-device rxe1 --backend-device mlx5_0

pull eth0
ip link set eth1 down
look down $BACKEND
plug eth0
ip link set eth1 up
settle eth1 up
ip link add link eth0 name eth0.7 type vlan id 7
ip link set eth0.7 up
ip route add default dev eth0.7
look up-again

for number in 0 1 2; do rdma link del "rxe$number"; done
cable eth3 03
cable eth4 04
tie bond0 eth3 eth4 mode balance-xor miimon 0
rdma link add rxe_bond0 type rxe netdev bond0
look bond $BACKEND
pull eth3
look leg-down-unmonitored $BACKEND
plug eth3
ip link set bond0 type bond miimon 50
pull eth3
notice eth3 down
look leg-down $BACKEND
plug eth3

rdma link del rxe_bond0
rdma link add rxe3 type rxe netdev eth3
rdma link add rxe4 type rxe netdev eth4
look legs-of-two-devices $BACKEND
rdma link del rxe3
rdma link del rxe4

cable eth5 05
cable eth6 06
tie bond1 eth5 eth6 mode active-backup miimon 50
rdma link add rxe_bond1 type rxe netdev bond1
pull eth5
notice eth5 down
plug eth5
notice eth5 up
look failover $BACKEND

modprobe ib_umad # holds on to the class while the driver is away
modprobe -r rdma_rxe
look empty-class
modprobe rdma_rxe
rdma link add rxe1 type rxe netdev eth1
look reloaded $BACKEND
"""
)
