"""Where a process's control group is, by the files of /proc: both versions, and mounts of every kind beside them."""

import pytest

from agents.linux.controllers import _directories, directories, numbers

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "expected"),
    [
        ("0::/a.slice/b.scope\n", V2, ["/sys/fs/cgroup/a.slice/b.scope", "/sys/fs/cgroup/a.slice", "/sys/fs/cgroup"]),
        ("0::/\n", V2, ["/sys/fs/cgroup"]),
        ("0::/../x\n", V2, []),
        ("0::/docker/1/x\n", "30 23 0:26 /docker/1 /cg ro - cgroup2 cgroup rw\n", ["/cg/x", "/cg"]),
        ("0::/a\n", "30 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n", ["/my groups/a", "/my groups"]),
        ("0::/a\n", f"9 1 0:4 / /empty rw -  tmpfs rw\n10 1 0:5 / /source rw - tmpfs  rw\n{V2}",
         ["/sys/fs/cgroup/a", "/sys/fs/cgroup"]),
        ("0::/a\n", "30 23 0:26 / /cg rw - cgroup2  rw\n", ["/cg/a", "/cg"]),
        ("5:cpu,memory:/job:2/x\n0::/z\n", f"30 2 0:2 / /v1 rw - cgroup cgroup rw,cpu,memory\n{V2}",
         ["/v1/job:2/x", "/v1/job:2", "/v1"]),
        ("5:cpu:/x\n", "30 2 0:2 / /v1 rw - cgroup cgroup rw,cpu\n", []),
        ("", "", []),
        ("broken\n0::/a\n", f"broken\n\n{V2}", ["/sys/fs/cgroup/a", "/sys/fs/cgroup"]),
    ],
)  # fmt: skip
def test_the_groups_around_a_process(cgroup: str, mountinfo: str, expected: list[str]) -> None:
    assert _directories("memory", cgroup, mountinfo) == expected
    assert isinstance(directories("memory"), list), "here, whatever there is"


def test_numbers_of_a_controllers_file() -> None:
    assert numbers("low 0\nhigh max\n\nbroken\noom_kill 3\n") == {"low": 0, "oom_kill": 3}
