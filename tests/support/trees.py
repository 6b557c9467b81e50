"""Makes `sys/` and `proc/` of a machine folder from its `tree.txt`, which a person can review.

    python -m tests.support.trees sysfs_fixtures/mi355x-pollara

`tree.txt` has the PCI tree as `lspci -t` shows it, one function a line, its children indented:

    host gpu-07                              the node's name (host.json, meta.json)
    kernel 6.8.0-79-generic
    route enp1s0f0                           the default route, as `route IF [METRIC]`
    bond bond0 enp1s0f0 enp1s0f1             a bond and its members; netvsc IF MEMBER is Hyper-V's
    gid-netdev mlx5_bond_0 bond0             the netdev of a device's GIDs, if it is another
    pci0000:15 numa=0                        a root bus: its folder below /sys/devices
      15:01.0 root-intel                     ADDRESS MODEL FACT=VALUE...; no domain is 0000
        16:00.0 pex
          18:00.0 h200
          19:00.0 cx7 rdma=mlx5_0 net=enp25s0np0 eth=400

MODELS has the PCI ids and the driver's constant facts of each model. Facts of one function:

    rdma=NAME net=NAME     the RDMA device and the netdev; without rdma= its module is not loaded
    eth=400 ib=400         link layer and rate of an ACTIVE port; eth=down, ib=down, ib=init
    ups=0                  carrier_up_count: how often the netdev's link came up since its driver
                           was loaded (1 if the port is up)
    ports=1:eth0,2:-       the RDMA device's ports and their netdevs, if they are several
    hca= board= fw=        instead of those of the model; board= alone: the driver has none
    guid= image=           node_guid and sys_image_guid (16 hex digits), zero for `0`
    speed=Mb/s             of the netdev, instead of the port's rate
    layer=TEXT             link_layer of a driver that is neither InfiniBand nor Ethernet
    physfn=ADDRESS         the function is a VF on the host of this physical function
    vpd=EACCES             errno of reads of `vpd`; phys=NAME: phys_port_name
    driver=                another driver; empty: none is bound

What nobody observes is made up, always in the same way: MAC addresses and GUIDs of a hash of the
machine's name and the address. Written by hand are `README.md` and `expected.labels`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

DEVICES = "sys/devices"
PCI = "sys/bus/pci/devices"
UP_SINCE_BOOT = "1"
ETHERNET, INFINIBAND, BRIDGE, GPU = "020000", "020700", "060400", "030200"
ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"
ROUTES_V6 = (
    "00000000000000000000000000000001 80 00000000000000000000000000000000 00"
    " 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo\n"
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00"
    " 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"
)
RATES = {  # Gb/s: the suffix that rate_show of drivers/infiniband/core/sysfs.c prints
    "10": "4X SDR",
    "25": "1X EDR",
    "40": "4X QDR",
    "50": "1X HDR",
    "100": "4X EDR",
    "200": "4X HDR",
    "400": "4X NDR",
    "800": "4X XDR",
}
STATES = {  # state, phys_state
    "up": ("4: ACTIVE", "5: LinkUp"),
    "init": ("2: INIT", "5: LinkUp"),
    "down": ("1: DOWN", "3: Disabled"),
    "polling": ("1: DOWN", "2: Polling"),
}


class Model(NamedTuple):
    """What all functions of a model have in common."""

    ids: str  # vendor:device
    subsystem: str
    pci_class: str
    driver: str = ""
    hca: str = ""  # hca_type, board_id and fw_ver of the RDMA device
    board: str = ""
    fw: str = ""
    oui: str = "a0:88:c2"


def _mlx5(device: str, subsystem: str, hca: str, board: str, fw: str) -> Model:
    return Model(f"15b3:{device}", subsystem, ETHERNET, "mlx5_core", hca, board, fw)


# ids and classes: the PCI ID database and the listings that the READMEs name.
MODELS = {
    # PCI bridges: root ports and the ports of switches
    "root-intel": Model("8086:352a", "8086:0000", BRIDGE),
    "root-amd": Model("1022:14ab", "1022:1453", BRIDGE),
    "root-grace": Model("10de:22b8", "10de:0000", BRIDGE),
    "root-arm": Model("10de:22ce", "10de:0000", BRIDGE),
    "root-qemu": Model("1b36:000c", "1b36:0000", BRIDGE),
    "root-vmware": Model("15ad:07a0", "15ad:07a0", BRIDGE),
    "port-qemu": Model("104c:8232", "0000:0000", BRIDGE),
    "pex": Model("1000:c030", "1000:100b", BRIDGE),
    "pex-smc": Model("1000:c030", "15d9:1d25", BRIDGE),
    "pex4": Model("1000:c010", "1000:a096", BRIDGE),
    "pex6": Model("1000:c040", "1000:100b", BRIDGE),
    "plx": Model("10b5:8796", "10b5:8796", BRIDGE),
    "gcd-switch": Model("1022:14c7", "1022:14c7", BRIDGE),  # of MI250X
    "gpu-switch": Model("1002:1500", "1002:0000", BRIDGE),  # of MI300X and MI355X
    "cx8-switch": Model("15b3:197c", "15b3:197c", BRIDGE),
    # GPUs and accelerators
    "a100": Model("10de:20b0", "10de:134f", GPU, "nvidia"),
    "h100": Model("10de:2330", "10de:16c1", GPU, "nvidia"),
    "h20": Model("10de:2329", "10de:198b", GPU, "nvidia"),
    "h200": Model("10de:2335", "10de:18be", GPU, "nvidia"),
    "b200": Model("10de:2901", "10de:1999", GPU, "nvidia"),
    "b300": Model("10de:3182", "10de:20e6", GPU, "nvidia"),
    "gb200": Model("10de:2941", "10de:2046", GPU, "nvidia"),
    "gb300": Model("10de:31c2", "10de:21f1", GPU, "nvidia"),
    "gb10": Model("10de:2e12", "10de:21ec", "030000", "nvidia"),
    "rtx6000": Model("10de:2bb5", "10de:204e", GPU, "nvidia"),
    "mi250x": Model("1002:740c", "1002:0b0c", "038000", "amdgpu"),
    "mi300x": Model("1002:74a1", "1002:74a1", "120000", "amdgpu"),
    "mi300x-vf": Model("1002:74b5", "1002:74a1", "120000", "amdgpu"),
    "mi355x": Model("1002:75a3", "1002:75a3", "120000", "amdgpu"),
    "gaudi3": Model(
        "1da3:1060", "1da3:1061", "120000", "habanalabs", "GAUDI3", "", "1.20.0", "b0:fd:0b"
    ),
    # NICs
    "cx5-2p": _mlx5("1019", "15b3:0008", "MT4121", "ORC0000000001", "16.35.3006"),
    "cx6": _mlx5("101b", "15b3:0007", "MT4123", "MT_0000000223", "20.43.2566"),
    "cx6-2p": _mlx5("101b", "15b3:0009", "MT4123", "MT_0000000224", "20.43.2566"),
    "cx6dx": _mlx5("101d", "15b3:0016", "MT4125", "MT_0000000359", "22.43.2566"),
    "cx6lx": _mlx5("101f", "15b3:0001", "MT4127", "MT_0000000531", "26.43.2566"),
    "cx7": _mlx5("1021", "15b3:0023", "MT4129", "MT_0000000838", "28.43.2566"),
    "cx7-2p": _mlx5("1021", "15b3:0026", "MT4129", "MT_0000000834", "28.43.2566"),
    "cx8": _mlx5("1023", "15b3:0041", "MT4131", "NVD0000000070", "40.45.1200"),
    "cx8-dma": Model("15b3:2100", "15b3:0041", "080100"),
    "bf3": _mlx5("a2dc", "15b3:0017", "MT41692", "MT_0000001069", "32.43.2566"),
    "bf3-2p": _mlx5("a2dc", "15b3:0009", "MT41692", "MT_0000000884", "32.43.2566"),
    "nvsw": _mlx5("1021", "15b3:0023", "MT4129", "MT_0000001096", "28.45.1202"),
    "cx-vf": _mlx5("101e", "15b3:0023", "MT4126", "MT_0000000838", "28.43.2566"),
    "cx-ib-vf": _mlx5("101e", "15b3:0023", "MT4126", "MSF0000000047", "28.40.1702"),
    "sf": Model("", "", "", "mlx5_core.sf", "MT4129", "MT_0000000838", "28.43.2566"),
    "ionic": Model("1dd8:1002", "1dd8:5201", ETHERNET, "ionic", "", "", "1.117.5-a-56", "04:90:81"),
    "thor2": Model(
        "14e4:1760",
        "14e4:d125",
        ETHERNET,
        "bnxt_en",
        "Broadcom NetXtreme-C/E RoCE Driver HCA",
        "",
        "231.0.154.0",
        "84:16:0c",
    ),
    "x550": Model("8086:1563", "8086:0001", ETHERNET, "ixgbe", oui="3c:ec:ef"),
    "ena": Model("1d0f:ec20", "1d0f:ec20", ETHERNET, "ena", oui="0a:ff:c1"),
    "efa": Model("1d0f:efa3", "1d0f:efa3", ETHERNET, "efa", "", "", "0.0.0.0", "0a:ff:c2"),  # noqa: S104
    "gve": Model("1ae0:0042", "1ae0:0058", ETHERNET, "gvnic", oui="42:01:0a"),
    "idpf": Model("8086:1452", "8086:0001", ETHERNET, "idpf", "", "", "1.2", "42:01:0b"),
    "mana": Model("1414:00ba", "1414:00b9", ETHERNET, "mana", "", "", "0.0.0", "7c:1e:52"),
    "virtio": Model("1af4:1041", "1af4:1100", ETHERNET, "virtio-pci"),
    "virtio-net": Model("", "", "", "virtio_net", oui="00:16:3e"),
    "erdma": Model("1ded:107f", "1ded:107f", ETHERNET, "erdma", "", "", "0.2.0", "00:16:3e"),
    "vmxnet3": Model("15ad:07b0", "15ad:07b0", ETHERNET, "vmxnet3", oui="00:50:56"),
    "pvrdma": Model("15ad:0820", "15ad:0820", "028000", "vmw_pvrdma", fw="1.0", oui="00:50:56"),
    "rtl8127": Model("10ec:8127", "10ec:0123", ETHERNET, "r8127", oui="4c:bb:47"),
}


class Line(NamedTuple):
    """A line of the PCI tree."""

    path: str  # the folder, below the root of the snapshot
    address: str  # with its domain; the name of an auxiliary device
    model: Model
    facts: dict[str, str]

    @property
    def bus(self) -> str:
        """Sub-functions are devices of the auxiliary bus, NICs of a guest of that of virtio."""
        if self.model.ids:
            return "pci"
        return "virtio" if self.address.startswith("virtio") else "auxiliary"

    @property
    def rate(self) -> str:
        """Gb/s; `down`, `init` or `polling` of a port that is not ACTIVE; "" without a port."""
        return self.facts.get("eth") or self.facts.get("ib") or ""

    @property
    def link(self) -> str:
        return "up" if self.rate.isdigit() else self.rate


class Tree:
    """The files, links and failed reads of one machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.host, self.kernel = name, "6.8.0-79-generic"
        self.routes: list[str] = []
        self._netdevs: dict[str, str] = {}  # their folders
        self._ports_of: dict[str, list[str]] = {}  # the folders of an RDMA device's ports

    def write(self, folder: Path) -> None:
        """Replace what the folder has of the machine; what is written by hand stays."""
        for top in ("sys", "proc"):
            shutil.rmtree(folder / top, ignore_errors=True)
        for path, text in self.contents().items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        for path, target in self.links.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(target)

    def contents(self) -> dict[str, str]:
        """Return every file and its text."""
        boot_id = str(uuid.uuid5(uuid.NAMESPACE_DNS, self.name))
        meta: dict[str, object] = {
            "schema": 1,
            "agent": None,
            "kernel": self.kernel,
            "time": "2026-05-04T10:00:00Z",
            "boot_id": boot_id,
            "anonymized": [],
        }
        errors = {"errors": dict(sorted(self.errors.items())), "empty": []}
        routes = "".join(f"{line:<127}\n" for line in (ROUTES, *self.routes))
        return self.files | {
            "proc/net/route": routes,
            "proc/net/ipv6_route": ROUTES_V6,
            "proc/sys/kernel/random/boot_id": f"{boot_id}\n",
            "meta.json": json.dumps(meta) + "\n",
            "host.json": json.dumps({"hostname": self.host, "private_flags": {}}) + "\n",
            "errors.json": json.dumps(errors, indent=1) + "\n",
        }

    def function(self, line: Line) -> None:
        """Add a PCI function or an auxiliary device, and its RDMA device and netdev."""
        if line.bus == "pci":
            self._pci(line)
        driver = line.facts.get("driver", line.model.driver)
        if driver:
            self._link(f"{line.path}/driver", f"sys/bus/{line.bus}/drivers/{driver}")
        if error := line.facts.get("vpd"):
            self.errors[f"{PCI}/{line.address}/vpd"] = error
            if "rdma" in line.facts:
                self.errors[f"sys/class/infiniband/{line.facts['rdma']}/device/vpd"] = error
        if "physfn" in line.facts:
            self.links[f"{line.path}/physfn"] = f"../{line.facts['physfn']}"
        for number, netdev in self._ports(line):
            if netdev:
                self._netdev(line, netdev, number)
            if "rdma" in line.facts:
                self._port(line, number, netdev)
        if "rdma" in line.facts:
            self._rdma(line)

    def master(self, name: str, members: list[str], *, is_bond: bool) -> None:
        """Add a netdev above others: a bond, or that of hv_netvsc above its VF."""
        folder = f"{DEVICES}/virtual/net/{name}" if is_bond else self._netvsc(name)
        self._link(f"sys/class/net/{name}", folder)
        speed = self.files[f"{self._netdevs[members[0]]}/speed"]
        address = self.files[f"{self._netdevs[members[0]]}/address"]
        self._texts(folder, operstate="up")
        self.files |= {f"{folder}/speed": speed, f"{folder}/address": address}
        if is_bond:
            self.files[f"{folder}/bonding/slaves"] = f"{' '.join(members)}\n"
            self.files[f"{folder}/bonding/mode"] = "802.3ad 4\n"
        for member in members:
            below = self._netdevs[member]
            self._link(f"{folder}/lower_{member}", below)
            self._link(f"{below}/master", folder)
            self._link(f"{below}/upper_{name}", folder)
            if is_bond:
                is_up = self.files[f"{below}/operstate"] == "up\n"
                self.files[f"{below}/bonding_slave/state"] = "active\n" if is_up else "backup\n"
                self.files[f"{below}/bonding_slave/mii_status"] = "up\n" if is_up else "down\n"

    def gid_netdev(self, device: str, netdev: str) -> None:
        """Name the netdev of a device's GIDs: the bond of a RoCE LAG, the netdev above a VF."""
        for folder in self._ports_of[device]:
            number = folder.rpartition("/")[2]
            of_class = f"sys/class/infiniband/{device}/ports/{number}"
            self.errors.pop(f"{of_class}/gid_attrs/ndevs/0", None)
            self.files[f"{folder}/gid_attrs/ndevs/0"] = f"{netdev}\n"

    def _pci(self, line: Line) -> None:
        self._link(f"{PCI}/{line.address}", line.path)
        model = line.model
        (vendor, device), (sub_vendor, sub_device) = (
            ids.split(":") for ids in (model.ids, line.facts.get("sub", model.subsystem))
        )
        pci_class = INFINIBAND if "ib" in line.facts else model.pci_class
        texts = {"class": pci_class, "vendor": vendor, "device": device}
        if pci_class != BRIDGE:
            texts |= {"subsystem_vendor": sub_vendor, "subsystem_device": sub_device}
        self._texts(line.path, **{name: f"0x{text}" for name, text in texts.items()})
        driver = line.facts.get("driver", model.driver)
        uevent = [f"DRIVER={driver}"] if driver else []
        uevent += [
            f"PCI_CLASS={int(pci_class, 16):X}",
            f"PCI_ID={model.ids.upper()}",
            f"PCI_SUBSYS_ID={sub_vendor.upper()}:{sub_device.upper()}",
            f"PCI_SLOT_NAME={line.address}",
        ]
        if pci_class != BRIDGE:
            self._texts(line.path, uevent="\n".join(uevent))
        if line.rate:
            self._texts(line.path, numa_node=line.facts.get("numa", "-1"))

    def _rdma(self, line: Line) -> None:
        """The files that ib_core and the driver make for every device."""
        name, model = line.facts["rdma"], line.model
        folder = f"{line.path}/infiniband/{name}"
        self._link(f"sys/class/infiniband/{name}", folder)
        self.links[f"{folder}/device"] = f"../../../{line.address}"
        node, image = self._guids(line)
        node_type = "7: unspecified" if "layer" in line.facts else "1: CA"
        self._texts(folder, node_type=node_type, node_guid=_colons(node, 4))
        self._texts(folder, sys_image_guid=_colons(image, 4), fw_ver=line.facts.get("fw", model.fw))
        for file, text in (("hca_type", model.hca), ("board_id", model.board)):
            if text := line.facts.get(file.partition("_")[0], text):
                self._texts(folder, **{file: text})

    def _port(self, line: Line, number: int, netdev: str) -> None:
        folder = f"{line.path}/infiniband/{line.facts['rdma']}/ports/{number}"
        self._ports_of.setdefault(line.facts["rdma"], []).append(folder)
        is_ib = "ib" in line.facts
        state, phys_state = STATES[line.link]
        rate = line.rate if line.rate.isdigit() else line.facts.get("nominal", "400")
        layer = "InfiniBand" if is_ib else "Ethernet"
        self._texts(
            folder,
            link_layer=line.facts.get("layer", layer),
            state=state,
            phys_state=phys_state,
            rate=f"{rate} Gb/sec ({RATES[rate]})",
        )
        node, _ = self._guids(line)
        port_guid = node if is_ib else _eui64(self._mac(line, number))
        self.files[f"{folder}/gids/0"] = f"fe80:0000:0000:0000:{_colons(port_guid, 4)}\n"
        if line.model.driver.startswith("mlx5") or line.model.driver == "ionic":
            self.files[f"{folder}/counters/link_downed"] = "0\n"
        ndev = f"{folder}/gid_attrs/ndevs/0"
        if is_ib or not netdev:
            of_class = f"sys/class/infiniband/{line.facts['rdma']}/ports/{number}"
            self.errors[f"{of_class}/gid_attrs/ndevs/0"] = "EINVAL"
        else:
            self.files[ndev] = f"{netdev}\n"

    def _netdev(self, line: Line, name: str, number: int) -> None:
        folder = f"{line.path}/net/{name}"
        self._netdevs[name] = folder
        self._link(f"sys/class/net/{name}", folder)
        self.links[f"{folder}/device"] = f"../../../{line.address}"
        is_up = line.link in {"up", ""}
        self._texts(folder, dev_port=str(number - 1), operstate="up" if is_up else "down")
        if "phys" in line.facts:
            self._texts(folder, phys_port_name=line.facts["phys"])
        if "ib" in line.facts:  # IPoIB: a QP number, the subnet's prefix, the port's GUID
            guid = _colons(self._guids(line)[0], 2)
            self._texts(folder, address=f"00:00:10:29:fe:80:{'00:' * 6}{guid}")
            return
        speed = f"{line.rate}000" if line.rate.isdigit() else "-1"
        ups = line.facts.get("ups", UP_SINCE_BOOT if is_up else "0")
        self._texts(folder, address=self._mac(line, number), carrier_up_count=ups)
        self._texts(folder, speed=line.facts.get("speed", speed))

    def _netvsc(self, name: str) -> str:
        """The folder of the netdev of hv_netvsc, a device of the VMBus."""
        guid = uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}/{name}")
        parent = f"{DEVICES}/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/{guid}"
        self.links[f"{parent}/net/{name}/device"] = f"../../../{guid}"
        self._link(f"{parent}/driver", "sys/bus/vmbus/drivers/hv_netvsc")
        return f"{parent}/net/{name}"

    @staticmethod
    def _ports(line: Line) -> list[tuple[int, str]]:
        """The numbers of the ports and their netdevs; an empty name is none."""
        if "ports" not in line.facts:
            return [(1, line.facts.get("net", ""))]
        pairs = [one.split(":") for one in line.facts["ports"].split(",")]
        return [(int(number), netdev.strip("-")) for number, netdev in pairs]

    def _mac(self, line: Line, number: int = 1) -> str:
        """A MAC address of the model's vendor; the functions of a card count up from the first."""
        card, _, function = line.address.rpartition(".")
        if line.bus != "pci":
            card, function = line.path, "0"
        rest = hashlib.sha256(f"{self.name}/{card}".encode()).digest()[:3]
        last = (rest[2] & 0xE0) + (int(function, 16) + number - 1) % 32
        return f"{line.model.oui}:{rest[0]:02x}:{rest[1]:02x}:{last:02x}"

    def _guids(self, line: Line) -> tuple[str, str]:
        """The GUID of the node and of its card, as 16 hex digits."""
        digits = self._mac(line).replace(":", "")
        node = f"{digits[:6]}0300{digits[6:]}" if line.model.driver.startswith("mlx5") else None
        node = line.facts.get("guid") or node or _eui64(self._mac(line))
        first = f"{int(node, 16) & ~0x1F:016x}"
        if not line.model.driver.startswith("mlx5"):
            first = node  # of other drivers each port is a system of its own
        return node.zfill(16), line.facts.get("image", first).zfill(16)

    def _texts(self, folder: str, **texts: str) -> None:
        self.files |= {f"{folder}/{name}": f"{text}\n" for name, text in texts.items()}

    def _link(self, path: str, target: str) -> None:
        self.links[path] = os.path.relpath(target, path.rpartition("/")[0])


def _colons(digits: str, size: int) -> str:
    return ":".join(digits[at : at + size] for at in range(0, len(digits), size))


def _eui64(mac: str) -> str:
    """The modified EUI-64 of a MAC address (RFC 4291, appendix A), as 16 hex digits."""
    digits = mac.replace(":", "")
    return f"{int(digits[:2], 16) ^ 2:02x}{digits[2:6]}fffe{digits[6:]}"


def parse(name: str, text: str) -> Tree:
    """Return the tree of a machine that has this `tree.txt`."""
    tree = Tree(name)
    above: list[tuple[int, str, dict[str, str]]] = []  # indent, path, inherited facts
    later = []
    addresses = set[str]()
    for raw in text.splitlines():
        words = shlex.split(raw, comments=True)
        if not words:
            continue
        indent = len(raw) - len(raw.lstrip())
        if not indent and not words[0].startswith(("pci", "LNX", "platform")):
            later.append(words)
            continue
        facts = dict(word.split("=", 1) for word in words if "=" in word)
        if not indent:
            above = [(0, f"{DEVICES}/{words[0]}", facts)]
            continue
        while above[-1][0] >= indent:
            above.pop()
        parent, inherited = above[-1][1:]
        address = words[0] if words[0].count(":") != 1 else f"0000:{words[0]}"
        if address in addresses:
            raise SystemExit(f"{name}/tree.txt: {address} stands twice")
        addresses.add(address)
        line = Line(f"{parent}/{address}", address, MODELS[words[1]], inherited | facts)
        tree.function(line)
        numa = {"numa": line.facts["numa"]} if "numa" in line.facts else {}
        above.append((indent, line.path, numa))
    for words in later:
        _statement(tree, words)
    return tree


def _statement(tree: Tree, words: list[str]) -> None:
    match words:
        case ["host", name]:
            tree.host = name
        case ["kernel", version]:
            tree.kernel = version
        case ["route", netdev, *rest]:
            metric = rest[0] if rest else "100"
            tree.routes.append(
                f"{netdev}\t00000000\t0100000A\t0003\t0\t0\t{metric}\t00000000\t0\t0\t0"
            )
        case ["subnet", netdev, network]:  # in network order, as /proc/net/route has it
            tree.routes.append(f"{netdev}\t{network}\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0")
        case ["bond" | "netvsc" as kind, name, *members]:
            tree.master(name, members, is_bond=kind == "bond")
        case ["gid-netdev", device, netdev]:
            tree.gid_netdev(device, netdev)
        case _:
            raise SystemExit(f"{tree.name}/tree.txt: unknown statement {words}")


def main() -> None:
    """Write the folders that are named, or all that have a `tree.txt`."""
    named = [Path(argument) for argument in sys.argv[1:]]
    for folder in named or [path.parent for path in Path("sysfs_fixtures").glob("*/tree.txt")]:
        parse(folder.name, (folder / "tree.txt").read_text()).write(folder)


if __name__ == "__main__":
    main()
