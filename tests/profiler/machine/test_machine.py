"""Which machine this is: read from trees of files that are laid out as Linux does."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.profiler.machine import describe as machine
from pytest_modelperf.profiler.machine.describe import (
    Host,
    Limits,
    cgroup_folders,
    cores_available,
    describe_machine,
    find_versions,
    limit_cores,
    read_limits,
)
from pytest_modelperf.profiler.machine.hardware import (
    MachineFacts,
    parse_processors,
    read_macos,
    read_sysctl,
)

GIB = 1 << 30
KIB = 1 << 10
HOST = Host(
    system="Linux",
    kernel="6.1.0",
    architecture="x86_64",
    microarchitecture="icelake",
    processors=8,
    allowed_processors=8,
    python="3.12.1",
)
CPU = "sys/devices/system/cpu"
CGROUP = "sys/fs/cgroup"
DMI = "sys/devices/virtual/dmi/id"
INTEL = """\
processor\t: {number}
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R)  Gold 6330 CPU @ 2.00GHz
physical id\t: 0
core id\t\t: {core}
flags\t\t: fpu avx512_vnni sse4_2 avx avx2 f16c fma avx512f amx_tile unheard_of
power management:

"""
ARM = """\
processor\t: {number}
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm asimddp sve i8mm bf16 sve2
CPU implementer\t: 0x41
CPU part\t: {part}

"""


def lay_out(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def cpuinfo(paragraph: str, count: int) -> str:
    return "".join(paragraph.format(number=n, core=n // 2) for n in range(count))


def caches(*caches: tuple[int, str, str]) -> dict[str, str]:
    return {
        f"{CPU}/cpu0/cache/index{index}/{name}": f"{value}\n"
        for index, cache in enumerate(caches)
        for name, value in zip(("level", "type", "size"), cache, strict=True)
    }


def siblings(*lists: str) -> dict[str, str]:
    return {f"{CPU}/cpu{n}/topology/core_cpus_list": f"{text}\n" for n, text in enumerate(lists)}


def test_an_intel_machine(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": cpuinfo(INTEL, 4),
        "proc/meminfo": "MemTotal:       16777216 kB\nMemFree:          12345 kB\n",
        "proc/sys/kernel/osrelease": "6.8.0-41-generic\n",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04 \\"LTS\\""\nID=ubuntu\n',
        f"{CPU}/online": "0-3\n",
        **siblings("0-1", "0-1", "2-3", "2-3"),
        **caches(
            (1, "Data", "48K"),
            (1, "Instruction", "32K"),
            (2, "Unified", "1280K"),
            (3, "Unified", "42M"),
        ),
        **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "powersave\n" for n in range(4)},
        f"{CPU}/intel_pstate/no_turbo": "1\n",
        f"{DMI}/sys_vendor": "Amazon EC2\n",  # bare metal of a cloud
    }
    facts = describe_machine(lay_out(tmp_path, files), HOST)
    assert facts == MachineFacts(
        cpu="Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz",
        microarchitecture="icelake",
        instruction_sets=(
            *("sse4_2", "avx", "avx2", "fma", "f16c"),
            *("avx512f", "avx512_vnni", "amx_tile"),
        ),
        physical_cores=2,
        logical_cores=4,
        usable_cores=4,
        quota_cores=None,
        caches={"L1d": 48 * KIB, "L1i": 32 * KIB, "L2": 1280 * KIB, "L3": 42 * KIB * KIB},
        memory_bytes=16 * GIB,
        memory_limit_bytes=None,
        governor="powersave",
        turbo=False,
        virtualization=None,
        system="Linux",
        kernel="6.8.0-41-generic",
        distribution='Ubuntu 24.04 "LTS"',
        architecture="x86_64",
        python="3.12.1",
        packages={},
    )
    assert facts.key == "linux-x86_64-icelake-4c"


@pytest.mark.parametrize(
    ("file", "content", "turbo"),
    [
        ("intel_pstate/no_turbo", "0", True),
        ("intel_pstate/no_turbo", "1", False),
        ("cpufreq/boost", "1", True),
        ("cpufreq/boost", "0", False),
        ("cpufreq/boost", "2", None),
        ("cpufreq/boost", "", None),
    ],
)
def test_turbo_is_what_the_driver_says(
    tmp_path: Path, file: str, content: str, *, turbo: bool | None
) -> None:
    assert describe_machine(lay_out(tmp_path, {f"{CPU}/{file}": content}), HOST).turbo is turbo


def test_an_amd_machine_without_topology_counts_cores_from_cpuinfo(tmp_path: Path) -> None:
    amd = INTEL.replace("Intel(R) Xeon(R)  Gold 6330", "AMD EPYC 9354")
    files = {"proc/cpuinfo": cpuinfo(amd, 6), f"{CPU}/cpufreq/boost": "1\n"}
    facts = describe_machine(lay_out(tmp_path, files), replace(HOST, microarchitecture="zen4"))
    assert (facts.logical_cores, facts.physical_cores, facts.turbo) == (6, 3, True)
    assert facts.key == "linux-x86_64-zen4-6c"


def test_processors_that_are_switched_off_are_not_counted(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": cpuinfo(INTEL, 4),
        f"{CPU}/online": "0,2",
        **siblings("0", "", "2"),
        f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
        f"{CPU}/cpu1/cpufreq/scaling_governor": "ondemand",
        f"{CPU}/cpu2/cpufreq/scaling_governor": "powersave",
    }
    facts = describe_machine(lay_out(tmp_path, files), HOST)
    assert (facts.logical_cores, facts.physical_cores) == (2, 2)
    assert facts.governor == "performance, powersave"


def test_an_arm_machine_with_two_kinds_of_cores_and_no_model_name(tmp_path: Path) -> None:
    text = ARM.format(number=0, part="0xd05") * 2 + ARM.format(number=1, part="0xd0a")
    host = replace(HOST, architecture="aarch64", microarchitecture=None, allowed_processors=4)
    facts = describe_machine(lay_out(tmp_path, {"proc/cpuinfo": text}), host)
    assert facts.cpu == "implementer 0x41 part 0xd05, implementer 0x41 part 0xd0a"
    assert facts.instruction_sets == ("asimd", "dotprod", "i8mm", "bf16", "sve", "sve2")
    assert facts.physical_cores is None
    assert facts.key == "linux-aarch64-implementer-0x41-part-0xd05-implementer-2c"


def test_only_what_every_processor_can_do_counts(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor: 0\nflags: avx avx2\n\nprocessor: 1\nflags: avx sse4_2\n"}
    assert describe_machine(lay_out(tmp_path, files), HOST).instruction_sets == ("avx",)


def test_a_processor_without_any_of_the_sets_is_not_an_unknown_one(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor: 0\nflags: fpu\n"}
    assert describe_machine(lay_out(tmp_path, files), HOST).instruction_sets == ()


def test_a_cache_of_no_size_is_unknown(tmp_path: Path) -> None:
    files = caches((1, "Data", "0K"), (2, "Unified", "K"), (3, "Unified", "512"), (4, "Data", "1K"))
    assert describe_machine(lay_out(tmp_path, files), HOST).caches == {"L3": 512}


@pytest.mark.parametrize(
    ("files", "virtualization"),
    [
        ({"proc/cpuinfo": "flags: fpu"}, None),
        ({"proc/cpuinfo": "flags: fpu", f"{DMI}/product_name": "KVM"}, None),
        ({"proc/cpuinfo": "flags: fpu hypervisor"}, "virtual machine"),
        (
            {"proc/cpuinfo": "flags: fpu hypervisor", ".dockerenv": ""},
            "container in a virtual machine",
        ),
        ({f"{DMI}/sys_vendor": "QEMU"}, "virtual machine"),
        (
            {
                "proc/cpuinfo": "Features: fp asimd",
                f"{DMI}/sys_vendor": "Microsoft Corporation",
                f"{DMI}/product_name": "Virtual Machine",
            },
            "virtual machine",
        ),
        (
            {
                "proc/cpuinfo": "Features: fp asimd",
                f"{DMI}/sys_vendor": "Amazon EC2",
                f"{DMI}/product_name": "c7g.metal",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/kubepods.slice/kubepods-pod1.slice/cri-2"}, "container"),
        ({"proc/self/cgroup": "0::/docker/0123456789abcdef"}, "container"),
        ({"proc/self/cgroup": "0::/user.slice/docker.service"}, None),
        ({"run/.containerenv": ""}, "container"),
        ({"run/systemd/container": "systemd-nspawn\n"}, "container"),
    ],
)
def test_a_container_and_a_virtual_machine_show_themselves(
    tmp_path: Path, files: dict[str, str | bytes], virtualization: str | None
) -> None:
    assert describe_machine(lay_out(tmp_path, files), HOST).virtualization == virtualization


def test_a_container_with_a_quota(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/meminfo": "MemTotal: 8388608 kB\n",
        f"{CGROUP}/cpu.max": "150000 100000\n",
        f"{CGROUP}/memory.max": f"{GIB}\n",
    }
    facts = describe_machine(lay_out(tmp_path, files), HOST)
    assert (facts.quota_cores, facts.usable_cores) == (1.5, 1)
    assert (facts.memory_bytes, facts.memory_limit_bytes) == (8 * GIB, GIB)
    assert facts.key.endswith("-1c")


@pytest.mark.parametrize(
    ("content", "quota"),
    [
        ("max 100000", None),
        ("max", None),
        ("50000", 0.5),
        ("50000 200000", 0.25),
        ("0 100000", None),
        ("100000 0", None),
        ("-1 100000", None),
        ("100000 x", None),
        ("1" + 400 * "0" + " 1", None),
        ("", None),
    ],
)
def test_a_quota(tmp_path: Path, content: str, quota: float | None) -> None:
    files = {"proc/self/cgroup": "0::/", f"{CGROUP}/cpu.max": content}
    assert read_limits(lay_out(tmp_path, files)).quota_cores == quota


def test_groups_of_version_1_limit_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpuacct,cpu:/job\n4:memory:/job\n",
        f"{CGROUP}/cpu/job/cpu.cfs_quota_us": "250000",
        f"{CGROUP}/cpu/job/cpu.cfs_period_us": "100000",
        f"{CGROUP}/memory/job/memory.limit_in_bytes": "1048576",
    }
    assert read_limits(lay_out(tmp_path, files)) == Limits(None, None)


def test_the_tightest_group_above_a_process_counts_and_its_neighbours_do_not(
    tmp_path: Path,
) -> None:
    files = {
        "proc/self/cgroup": "0::/user.slice/job/step",
        f"{CGROUP}/user.slice/job/step/cpu.max": "max 100000",
        f"{CGROUP}/user.slice/job/cpu.max": "300000 100000",
        f"{CGROUP}/user.slice/cpu.max": "400000 100000",
        f"{CGROUP}/user.slice/memory.max": "2048",
        f"{CGROUP}/user.slice/job/step/memory.max": "4096",
        f"{CGROUP}/user.slice/other/cpu.max": "100000 100000",
        f"{CGROUP}/user.slice/job/step/below/cpu.max": "100000 100000",
    }
    limits = read_limits(lay_out(tmp_path, files))
    assert (limits.quota_cores, limits.memory_bytes) == (3.0, 2048)


def test_a_mount_that_shows_only_a_part_is_read_from_there(tmp_path: Path) -> None:
    """A container without a cgroup namespace: the path is the host's, the mount its own."""
    files = {
        "proc/self/cgroup": "7:cpu,cpuacct:/docker/xyz\n0::/docker/abc/inner\n",
        "proc/self/mountinfo": (
            "30 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
            "31 30 0:29 /docker/abc /sys/fs/c\\040group rw,nosuid - cgroup2 cgroup rw\n"
            "32 30 0:29 /docker/xyz /mnt/other rw - cgroup2 cgroup rw\n"
            "33 30 0:30 /docker/abc /mnt/old rw - cgroup cgroup rw,cpuacct,cpu\n"
        ),
        "sys/fs/c group/inner/cpu.max": "200000 100000",
        "mnt/other/cpu.max": "100000 100000",
        "mnt/old/cpu.max": "100000 100000",
    }
    root = lay_out(tmp_path, files)
    inner = root / "sys/fs/c group/inner"
    assert cgroup_folders(root) == (inner, inner.parent)
    assert read_limits(root).quota_cores == 2.0


def test_groups_that_a_process_was_moved_out_of_do_not_limit_it(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/../other", f"{CGROUP}/cpu.max": "100000 100000"}
    assert read_limits(lay_out(tmp_path, files)).quota_cores is None


@pytest.mark.parametrize(("limit", "shown"), [("max", None), ("1048576", None), ("1024", 1024)])
def test_a_limit_of_at_least_the_memory_is_left_out(
    tmp_path: Path, limit: str, shown: int | None
) -> None:
    files = {
        "proc/self/cgroup": "0::/",
        "proc/meminfo": "MemTotal: 1024 kB",
        f"{CGROUP}/memory.max": limit,
    }
    assert describe_machine(lay_out(tmp_path, files), HOST).memory_limit_bytes == shown


@pytest.mark.parametrize(
    ("logical", "allowed", "quota", "cores", "reason"),
    [
        (8, 8, None, 8, "the machine has 8 processors"),
        (1, None, None, 1, "the machine has 1 processor"),
        (8, 2, None, 2, "the process may use 2 of 8 processors"),
        (8, 2, 2.0, 2, "the process may use 2 of 8 processors"),
        (8, 8, 1.5, 1, "the cgroup allows 1.5 CPUs"),
        (8, 3, 2.5, 2, "the cgroup allows 2.5 CPUs"),
        (8, 8, 1.0, 1, "the cgroup allows 1 CPU"),
        (8, 8, 0.25, 1, "the cgroup allows 0.25 CPUs"),
        (8, 8, 64.0, 8, "the machine has 8 processors"),
        (None, None, 3.0, 3, "the cgroup allows 3 CPUs"),
        (None, 4, None, 4, "the machine has 4 processors"),
        (4, 64, None, 4, "the machine has 4 processors"),
        (None, None, None, None, "the number of processors is unknown"),
    ],
)
def test_the_tightest_limit_is_the_one_that_is_named(
    logical: int | None, allowed: int | None, quota: float | None, cores: int | None, reason: str
) -> None:
    limit = limit_cores(logical, allowed, quota)
    assert (limit.cores, limit.reason) == (cores, reason)


@given(
    logical=st.none() | st.integers(1, 300),
    allowed=st.none() | st.integers(1, 300),
    quota=st.none() | st.floats(0.001, 1e18),
)
def test_no_limit_is_exceeded_and_one_core_there_always_is(
    logical: int | None, allowed: int | None, quota: float | None
) -> None:
    cores = limit_cores(logical, allowed, quota).cores
    limits = [limit for limit in (logical, allowed, quota) if limit is not None]
    assert (cores is None) == (not limits)
    assert cores is None or 1 <= cores <= max(1, min(limits))


def test_cores_available_reads_all_three_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = lay_out(tmp_path, {f"{CPU}/online": "0-7"})
    # Which processors a process may use is up to the system that runs these tests.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert cores_available(root).reason == "the machine has 8 processors"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert cores_available(root).reason == "the process may use 6 of 8 processors"
    lay_out(root, {"proc/self/cgroup": "0::/a", f"{CGROUP}/a/cpu.max": "420000 100000"})
    assert cores_available(root) == limit_cores(8, 6, 4.2)


def test_an_empty_tree_has_no_facts(tmp_path: Path) -> None:
    facts = describe_machine(tmp_path, Host())
    assert facts == MachineFacts()
    assert facts.key == "unknown-unknown-unknown"


def test_facts_that_are_in_no_file_come_from_the_host(tmp_path: Path) -> None:
    facts = describe_machine(tmp_path, replace(HOST, distribution="macOS 15.1"))
    assert (facts.kernel, facts.distribution) == ("6.1.0", "macOS 15.1")
    assert (facts.logical_cores, facts.usable_cores) == (8, 8)


def test_folders_in_the_place_of_files_are_as_good_as_nothing(tmp_path: Path) -> None:
    for name in ("proc/cpuinfo", "proc/self/cgroup", f"{CPU}/online", "etc/os-release"):
        (tmp_path / name).mkdir(parents=True)
    assert describe_machine(tmp_path, Host()) == MachineFacts()


@pytest.mark.parametrize(
    "text",
    [
        b"model name: " + b"\x1b[31m\xff" * 400_000, b"processor: " + b"9" * 1_000_000,
        b"processor: 0\nflags: fpu\n\n" * 80_000, b"cpu:\n\n" * 200_000, b"\n" * 500_000,
        b"flags" * 400_000, b"\0" * 1_000_000,
    ],
    ids=["escapes", "digits", "processors", "paragraphs", "empty", "one-line", "null"],
)  # fmt: skip
def test_a_hostile_cpuinfo_is_read_as_far_as_it_makes_sense(tmp_path: Path, text: bytes) -> None:
    facts = describe_machine(lay_out(tmp_path, {"proc/cpuinfo": text}), HOST)
    assert facts.cpu is None or (facts.cpu.isprintable() and len(facts.cpu) <= 120)
    assert facts.logical_cores in {1, 8}
    assert facts.physical_cores is None


@given(
    cpu=st.none() | st.text(),
    architecture=st.none() | st.text(max_size=50),
    cores=st.integers(1, 999),
)
def test_the_key_is_a_safe_file_name_whatever_the_names_are(
    cpu: str | None, architecture: str | None, cores: int
) -> None:
    facts = MachineFacts(system="Linux", architecture=architecture, cpu=cpu, usable_cores=cores)
    assert re.fullmatch(rf"linux-[a-z0-9_-]{{1,40}}-[a-z0-9_-]{{1,40}}-{cores}c", facts.key)


def test_the_key_does_not_change_with_python_kernel_or_clocks() -> None:
    facts = MachineFacts(
        system="Darwin", architecture="arm64", microarchitecture="m1", usable_cores=8
    )
    later = replace(facts, python="3.13.0", kernel="25.0", governor="performance", turbo=True)
    assert facts.key == later.key == "macos-arm64-m1-8c"


NUMBER = st.integers(-2, 10**20).map(str)
LINE = st.one_of(
    st.text(max_size=20),
    NUMBER,
    st.builds("{}-{}".format, NUMBER, NUMBER),
    st.builds("{} {}".format, NUMBER, NUMBER),
    st.builds("{}::/{}".format, st.just("0") | NUMBER, st.text()),
    st.builds("{}: {}".format, st.sampled_from(["processor", "flags", "core id"]), st.text()),
    st.builds("1 2 0:3 {} /{} rw - cgroup2 x cpu".format, st.text(), st.text()),
    st.builds("MemTotal: {} kB".format, NUMBER),
    st.builds("PRETTY_NAME={}".format, st.text()),
)
CONTENT = st.binary(max_size=60) | st.lists(LINE, max_size=6).map(
    lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")
)
NAMES = (
    *("proc/cpuinfo", "proc/meminfo", "proc/self/cgroup", "proc/self/mountinfo"),
    *("proc/sys/kernel/osrelease", "etc/os-release", "run/systemd/container"),
    *(f"{CPU}/online", f"{CPU}/cpu0/cache/index0/size", f"{CPU}/cpu0/topology/core_cpus_list"),
    *(f"{CPU}/cpu0/cpufreq/scaling_governor", f"{CPU}/cpufreq/boost", ".dockerenv"),
    *(f"{CGROUP}/cpu.max", f"{CGROUP}/memory.max", f"{DMI}/product_name"),
)


@pytest.mark.slow
@given(files=st.dictionaries(st.sampled_from(NAMES), CONTENT))
def test_no_content_of_any_file_raises_or_makes_a_0(files: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        facts = describe_machine(lay_out(Path(folder), files), Host())
    for fact in facts.__struct_fields__:
        value = getattr(facts, fact)
        assert value is False or value is None or value in ((), {}) or value
        assert not isinstance(value, str) or value.isprintable()


@pytest.mark.parametrize(
    ("text", "processors"),
    [
        ("0", {0}),
        ("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}),
        ("3-1", set()),
        ("0-99999999", set()),
        ("0,x", set()),
        ("", set()),
        (None, set()),
        ("\u0661", set()),  # a digit, but none of the kernel's
    ],
)
def test_a_list_of_processors(text: str | None, processors: set[int]) -> None:
    assert parse_processors(text) == processors


def test_a_mac() -> None:
    sysctl = {
        "machdep.cpu.brand_string": "Apple M1 Pro", "hw.physicalcpu": "10", "hw.logicalcpu": "10",
        "hw.memsize": str(16 * GIB), "hw.perflevel0.l1dcachesize": "131072",
        "hw.l1dcachesize": "65536", "hw.l2cachesize": "4194304",
        "hw.optional.arm.FEAT_DotProd": "1", "hw.optional.arm.FEAT_BF16": "0",
        "hw.optional.AdvSIMD": "1", "kern.hv_vmm_present": "0",
    }  # fmt: skip
    assert read_macos(sysctl) == MachineFacts(
        cpu="Apple M1 Pro",
        instruction_sets=("asimd", "dotprod"),
        physical_cores=10,
        logical_cores=10,
        caches={"L1d": 131072, "L2": 4194304},
        memory_bytes=16 * GIB,
    )
    assert read_macos({"kern.hv_vmm_present": "1"}) == MachineFacts(
        virtualization="virtual machine"
    )


def test_a_mac_is_described_without_files(tmp_path: Path) -> None:
    lay_out(tmp_path, {"proc/cpuinfo": cpuinfo(INTEL, 2)})
    host = Host(system="Darwin", architecture="arm64", processors=8, sysctl={"hw.memsize": "4096"})
    facts = describe_machine(tmp_path, host)
    assert (facts.cpu, facts.usable_cores, facts.memory_bytes) == (None, 8, 4096)


@pytest.mark.skipif(sys.platform == "darwin", reason="there is a sysctl of that kind")
def test_without_sysctl_there_are_no_facts() -> None:
    assert read_sysctl() == {}


def test_versions_are_those_of_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(
        tmp_path,
        {
            "modelperf_sound-1.2.dist-info/METADATA": "Name: modelperf-sound\nVersion: 1.2\n",
            "modelperf_broken-3.dist-info/METADATA": b"\xff\xfe\0",
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("modelperf-broken", "modelperf-sound", "modelperf-absent")
    assert find_versions(names) == {"modelperf-sound": "1.2"}


def fail() -> None:
    warnings.warn("cannot read", UserWarning, stacklevel=1)
    raise ValueError


@pytest.mark.parametrize(
    ("name", "family", "expected"),
    [("icelake", "x86_64", "icelake"), ("aarch64", "aarch64", None), (None, None, None)],
)
def test_only_a_microarchitecture_that_says_more_than_its_family_is_one(
    monkeypatch: pytest.MonkeyPatch, name: str | None, family: str | None, expected: str | None
) -> None:
    class Found:
        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Found) and self.name == other.name

        def __hash__(self) -> int:
            return hash(self.name)

        @property
        def family(self) -> Found:
            return Found(family or "")

    package = types.ModuleType("archspec")
    cpu = types.SimpleNamespace(host=fail if name is None else lambda: Found(name))
    monkeypatch.setattr(package, "cpu", cpu, raising=False)
    monkeypatch.setitem(sys.modules, "archspec", package)
    assert machine.ask_host().microarchitecture == expected


def test_without_archspec_the_microarchitecture_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "archspec", None)
    assert machine.ask_host().microarchitecture is None


def test_this_machine_can_be_described() -> None:
    facts = describe_machine()
    assert facts.system
    assert facts.architecture
    assert facts.python
    assert facts.packages["onnx"] == importlib.metadata.version("onnx")
    assert facts.usable_cores == cores_available().cores
    assert facts.usable_cores is not None
    assert facts.usable_cores >= 1
    assert re.fullmatch(r"[a-z0-9_-]+c", facts.key)
    assert facts == describe_machine()
