#!/usr/bin/env python3
"""tests/runtime/machine/topologies/make.py - write the described machines beside this file.

Each is an hwloc XML export cut down to what binding looks at: packages, NUMA nodes, cores, processors,
and NVIDIA GPUs behind their PCI host bridges. The machines are ones that Yoke is for, or that have been
seen to break programs like it.
"""
import os

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 1 << 30


def bits(numbers):
    """A set of numbers as hwloc writes bitmaps: 32-bit words, the highest first."""
    value = sum(1 << n for n in numbers)
    words = []
    while value or not words:
        words.append(f"0x{value & 0xffffffff:08x}")
        value >>= 32
    return ",".join(reversed(words))


class Writer:
    def __init__(self):
        self.lines = []
        self.depth = 0
        self.gp = 0

    def open(self, kind, **attributes):
        self.put(kind, attributes, ">")
        self.depth += 1

    def close(self):
        self.depth -= 1
        self.lines.append("  " * self.depth + "</object>")

    def leaf(self, kind, **attributes):
        self.put(kind, attributes, "/>")

    def put(self, kind, attributes, end):
        self.gp += 1
        attributes = {"gp_index": self.gp, **attributes}
        text = " ".join(f'{k}="{v}"' for k, v in attributes.items())
        self.lines.append("  " * self.depth + f'<object type="{kind}" {text}{end}')


def sets(cpus, nodes):
    c, n = bits(cpus), bits(nodes)
    return {"cpuset": c, "complete_cpuset": c, "nodeset": n, "complete_nodeset": n}


def put_gpus(w, buses):
    """One host bridge a GPU, as on servers; class 0300 is a card with a display, 0302 one without."""
    for domain, bus in buses:
        w.open("Bridge", bridge_type="0-1", depth=0, bridge_pci=f"{domain:04x}:[{bus:02x}-{bus:02x}]")
        w.leaf("PCIDev", pci_busid=f"{domain:04x}:{bus:02x}:00.0",
               pci_type="0300 [10de:2685] [10de:17f4] a1", pci_link_speed="31.507692")
        w.leaf("PCIDev", pci_busid=f"{domain:04x}:{bus:02x}:00.1",
               pci_type="0403 [10de:22ba] [10de:17f4] a1", pci_link_speed="31.507692")
        w.close()


def machine(name, packages, allowed=None, loose_gpus=()):
    """packages: dicts of node (number), memory (GiB), cores (lists of processors), gpus (domain, bus)."""
    w = Writer()
    cpus = [c for p in packages for core in p["cores"] for c in core]
    nodes = [p["node"] for p in packages]
    w.depth = 1
    w.open("Machine", os_index=0, **sets(cpus, nodes),
           allowed_cpuset=bits(cpus if allowed is None else allowed), allowed_nodeset=bits(nodes))
    for i, p in enumerate(packages):
        mine = [c for core in p["cores"] for c in core]
        w.open("Package", os_index=i, **sets(mine, [p["node"]]))
        w.leaf("NUMANode", os_index=p["node"], **sets(mine, [p["node"]]), local_memory=p["memory"] * GIB)
        for j, core in enumerate(p["cores"]):
            w.open("Core", os_index=j, **sets(core, [p["node"]]))
            for cpu in core:
                w.leaf("PU", os_index=cpu, **sets([cpu], [p["node"]]))
            w.close()
        put_gpus(w, p.get("gpus", []))
        w.close()
    put_gpus(w, loose_gpus)
    w.close()
    with open(os.path.join(HERE, name + ".xml"), "w") as f:
        f.write('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                '<topology version="2.0">\n' + "\n".join(w.lines) + "\n</topology>\n")


def smt(first, n, siblings):
    """n cores from processor `first` on; the second threads are numbered `siblings` further up."""
    return [[c, c + siblings] for c in range(first, first + n)]


def plain(first, n):
    return [[c] for c in range(first, first + n)]


# Two sockets of 32 cores with two threads each, eight RTX 4090 D, four to a socket.
machine("two-sockets-8x4090", [
    dict(node=0, memory=512, cores=smt(0, 32, 64), gpus=[(0, b) for b in (0x01, 0x25, 0x41, 0x61)]),
    dict(node=1, memory=512, cores=smt(32, 32, 64), gpus=[(0, b) for b in (0x81, 0xa1, 0xc1, 0xe1)]),
])
# One socket of 16 cores with two threads each, four GPUs.
machine("one-socket-4x4090", [
    dict(node=0, memory=256, cores=smt(0, 16, 16), gpus=[(0, b) for b in (0x01, 0x21, 0x41, 0x61)]),
])
# The first, as a container sees it whose cpuset holds a few processors here and there: two cores and a
# half of socket 0, three whole cores of socket 1.
machine("sparse-cpuset", [
    dict(node=0, memory=512, cores=smt(0, 32, 64), gpus=[(0, b) for b in (0x01, 0x25, 0x41, 0x61)]),
    dict(node=1, memory=512, cores=smt(32, 32, 64), gpus=[(0, b) for b in (0x81, 0xa1, 0xc1, 0xe1)]),
], allowed=[3, 67, 9, 73, 20, 33, 97, 40, 104, 63, 127])
# The same with socket 0 alone allowed: four of its GPUs have no core of their own.
machine("far-cpuset", [
    dict(node=0, memory=512, cores=plain(0, 8), gpus=[(0, 0x01)]),
    dict(node=1, memory=512, cores=plain(8, 8), gpus=[(0, 0x81)]),
], allowed=range(8))
# Memory modules in one socket only; sparse numbers of nodes as some firmware gives them.
machine("node-without-memory", [
    dict(node=0, memory=256, cores=plain(0, 8), gpus=[(0, 0x01)]),
    dict(node=2, memory=0, cores=plain(8, 8), gpus=[(0, 0x81)]),
])
# A virtual machine that shows two nodes and hangs its GPUs on neither.
machine("gpus-nowhere", [
    dict(node=0, memory=64, cores=plain(0, 6)),
    dict(node=1, memory=64, cores=plain(6, 6)),
], loose_gpus=[(0, 0x05), (0, 0x06), (1, 0x01)])
# One GPU on a node, one nowhere.
machine("one-gpu-nowhere", [
    dict(node=0, memory=64, cores=plain(0, 6), gpus=[(0, 0x05)]),
    dict(node=1, memory=64, cores=plain(6, 6)),
], loose_gpus=[(0, 0x06)])
# Firmware that tells of two threads on some cores and of one on others.
machine("odd-siblings", [
    dict(node=0, memory=32, cores=[[0, 4], [1], [2, 5], [3]]),
])
