"""Changes of baselines since a commit: each as a sentence, and those that no recording writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.baselines.changes import plan_update
from pytest_modelperf.baselines.overview import (
    Review,
    ReviewedBaseline,
    list_baselines,
    review_baselines,
)
from pytest_modelperf.baselines.records import (
    Baseline,
    BaselineRecording,
    MachineBaseline,
    StoredPlan,
)
from pytest_modelperf.baselines.report import review_report
from pytest_modelperf.baselines.store import BaselineStore
from pytest_modelperf.errors import UsageError
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from tests.support.baseline_writer import MACHINE, NAME, make_recording
from tests.support.known import known
from tests.support.repository import git, needs_git

BOTH = ("b1-c1", "b8-c2")
STYLE = TextStyle(width=80)

pytestmark = needs_git


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of baselines with one of two cases, in a repository that has committed it."""
    git(tmp_path, "init", "-q", "-b", "main")
    folder = tmp_path / "baselines"
    put(folder, make_recording(BOTH))
    commit(tmp_path)
    return folder


def put(folder: Path, recording: BaselineRecording) -> None:
    store = BaselineStore(folder)
    store.apply(plan_update(store.read(recording.name), recording))


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")


def read(folder: Path) -> Baseline:
    return known(BaselineStore(folder).read(NAME))


def lines(folder: Path, ref: str = "main") -> list[str]:
    """The lines of the baselines that changed, without the heading."""
    return shown(review_baselines(folder, ref))


def shown(review: Review) -> list[str]:
    # A heading of one line, wherever the folder is.
    fits = replace(review, folder=Path("baselines"))
    return render_report(review_report(fits), STYLE).splitlines()[1:]


def line_of(folder: Path, change: Callable[[Baseline], Baseline]) -> list[str]:
    """The line after a change by hand, for what no recording would store."""
    before = read(folder)
    reviewed = ReviewedBaseline(NAME, before, change(before))
    return shown(replace(review_baselines(folder, "main"), baselines=(reviewed,)))


def with_case(baseline: Baseline, **fields: object) -> Baseline:
    """The baseline with other fields in its first case."""
    first, *others = baseline.model.cases
    return replace(
        baseline, model=replace(baseline.model, cases=(replace(first, **fields), *others))
    )


def test_nothing_changed(folder: Path) -> None:
    review = review_baselines(folder, "main")
    assert (review.baselines, review.unchanged, review.broken) == ((), 1, ())
    assert lines(folder) == []


def test_a_commit_whose_paths_lead_out_of_the_folder_is_refused(folder: Path) -> None:
    """No checkout would write them, but a repository can hold them."""
    root = folder.parent
    blob = git(root, "hash-object", "-w", "--stdin", given="text")
    entry = f"100644 blob {blob}\tfile"
    for name in ("..", "baselines"):
        tree = git(root, "mktree", given=f"{entry}\n")
        entry = f"040000 tree {tree}\t{name}"
    tree = git(root, "mktree", given=f"{entry}\n")
    sha = git(root, "commit-tree", "-m", "some change", tree)
    with pytest.raises(UsageError, match="outside of its folder"):
        review_baselines(folder, sha)


def test_a_new_model_says_how_its_figures_changed(folder: Path) -> None:
    put(folder, make_recording(BOTH, version=2))
    assert lines(folder) == snapshot(
        [
            "changed models--encoder: new model 6b86b273ff34 → d4735e3a265e; p50 +99.8 %",
            "  (b1-c1, b8-c2); MACs +100.0 % (b1-c1, b8-c2); twin changed; also Conv MACs",
        ]
    )


def test_the_worst_time_comes_first(folder: Path) -> None:
    put(folder, make_recording(("b8-c2",), version=2))
    put(folder, make_recording(("b1-c1",), version=3))
    line = " ".join(lines(folder))
    assert line.index("(b1-c1)") < line.index("(b8-c2)")


def test_a_figure_that_fell_to_0_is_not_the_worst(folder: Path) -> None:
    def changed(baseline: Baseline) -> Baseline:
        cases = tuple(
            replace(case, static=replace(case.static, macs=macs))
            for case, macs in zip(baseline.model.cases, (0, 1800), strict=True)
        )
        return replace(baseline, model=replace(baseline.model, cases=cases))

    line = " ".join(line_of(folder, changed))
    assert line.index("+100.0 %") < line.index("−100.0 %")


def test_a_case_that_was_not_recorded_of_the_new_model_is_named(folder: Path) -> None:
    put(folder, make_recording(("b8-c2",), version=2))
    assert lines(folder) == snapshot(
        [
            "changed models--encoder: new model 6b86b273ff34 → d4735e3a265e; b1-c1 recorded",
            "  of an older model; p50 +99.8 % (b8-c2); MACs +100.0 % (b8-c2); twin changed;",
            "  also Conv MACs",
        ]
    )


def test_another_twin_of_the_same_model_is_reported(folder: Path) -> None:
    put(folder, replace(make_recording(BOTH), twin=b"another"))
    assert lines(folder) == snapshot(
        ["changed models--encoder: same model; twin changed although the model is the same"]
    )


def test_cases_that_are_added_and_removed_are_named(folder: Path) -> None:
    put(folder, make_recording(("b4-c1",)))
    assert lines(folder) == snapshot(["changed models--encoder: same model; added b4-c1"])
    put(folder, make_recording(BOTH))
    git(folder, "checkout", "-q", "-b", "more")
    commit(folder)
    git(folder, "checkout", "-q", "main", "--", ".")
    assert lines(folder, "more") == snapshot(["changed models--encoder: same model; removed b4-c1"])


def test_new_and_removed_baselines_are_lines(folder: Path) -> None:
    put(folder, replace(make_recording(), name="decoder"))
    put(folder, replace(make_recording(), name="other"))
    commit(folder)
    put(folder, replace(make_recording(version=2), name="third"))
    for path in (folder / "decoder").iterdir():
        path.unlink()
    (folder / "decoder").rmdir()
    assert lines(folder) == snapshot(
        [
            "removed decoder: model 6b86b273ff34; b1-c1; MACs 900; params 70",
            "new third: model d4735e3a265e; b1-c1; MACs 1.800 k; params 70",
        ]
    )


def test_the_folder_may_be_the_whole_repository(tmp_path: Path) -> None:
    put(tmp_path, make_recording())
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    put(tmp_path, make_recording(version=2))
    assert [each.name for each in review_baselines(tmp_path, "main").baselines] == [NAME]


def test_a_baseline_that_git_does_not_know_yet_is_new(folder: Path) -> None:
    git(folder.parent, "checkout", "-q", "--orphan", "empty")
    git(folder.parent, "commit", "-q", "--allow-empty", "-m", "none", "--only")
    assert [each.status.value for each in review_baselines(folder, "empty").baselines] == ["new"]


def test_a_file_in_the_place_of_the_folder_in_the_commit_is_an_error(folder: Path) -> None:
    kept = folder.rename(folder.parent / "kept")
    folder.write_text("", encoding="ascii")
    commit(folder.parent)
    folder.unlink()
    kept.rename(folder)
    with pytest.raises(UsageError, match="was not a folder"):
        review_baselines(folder, "main")


def test_a_folder_that_is_gone_has_lost_all(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    assert [each.status.value for each in review_baselines(folder, "main").baselines] == ["removed"]


def test_another_machine_and_engine_are_named(folder: Path) -> None:
    put(folder, make_recording(("b1-c1",), key="linux-arm64-graviton3-4c"))
    assert lines(folder) == snapshot(
        ["changed models--encoder: same model; measured on linux-arm64-graviton3-4c"]
    )

    def upgraded(baseline: Baseline) -> Baseline:
        (machine,) = (each for each in baseline.machines if each.key == MACHINE.key)
        engine = replace(machine.cases["b1-c1"].engine, version="1.32.0")
        cases = {key: replace(case, engine=engine) for key, case in machine.cases.items()}
        facts = replace(machine.machine, cpu="AMD EPYC 9R45")
        changed = MachineBaseline(key=machine.key, machine=facts, cases=cases)
        return replace(baseline, machines=(changed,))

    assert line_of(folder, upgraded) == snapshot(
        [
            "changed models--encoder: same model; p50 0 % (b1-c1, b8-c2); runtime onnxruntime",
            "  1.31.1 → onnxruntime 1.32.0; no longer measured on linux-arm64-graviton3-4c;",
            "  processor of linux-x86_64-zen4-2c AMD EPYC 9R14 → AMD EPYC 9R45",
        ]
    )


def test_changed_counts_of_an_unchanged_model_are_listed_first(folder: Path) -> None:
    def changed(baseline: Baseline) -> Baseline:
        static = known(baseline.model.cases[0].static)
        return with_case(baseline, static=replace(static, macs=1))

    assert line_of(folder, changed) == snapshot(
        [
            "changed models--encoder: counts changed although the model is the same (b1-c1):",
            "  this is not what a recording writes; same model; MACs −99.9 % (b1-c1)",
        ]
    )


def test_another_version_may_count_differently(folder: Path) -> None:
    def changed(baseline: Baseline) -> Baseline:
        case = baseline.model.cases[0]
        return with_case(
            baseline,
            static=replace(known(case.static), elementwise_ops=11),
            provenance=replace(known(case.provenance), packages={"onnx": "1.24.0"}),
        )

    assert line_of(folder, changed) == snapshot(
        [
            "changed models--encoder: counts changed although the model is the same (b1-c1):",
            "  another version recorded it, onnx 1.23.2 → 1.24.0; same model; also",
            "  elementwise ops",
        ]
    )


@pytest.mark.parametrize("dims", [{"seq": 64}, {"seq": 128}])
def test_counts_at_other_sizes_do_not_contradict_each_other(
    folder: Path, dims: dict[str, int]
) -> None:
    before = read(folder)
    static = known(before.model.cases[0].static)
    after = with_case(before, static=replace(static, macs=1), dims=dims)
    found = ReviewedBaseline(NAME, before, after).contradictions
    assert bool(found) == (dims == before.model.cases[0].dims)


def test_a_figure_that_an_older_version_left_out_is_not_a_contradiction(folder: Path) -> None:
    before = read(folder)
    static = known(before.model.cases[0].static)
    after = with_case(before, static=replace(static, scalar_params=3))
    assert static.scalar_params is None
    assert ReviewedBaseline(NAME, before, after).contradictions == ()


def test_a_changed_size_with_an_unchanged_digest_is_reported(folder: Path) -> None:
    def changed(baseline: Baseline) -> Baseline:
        model = replace(baseline.model.model, size_bytes=5)
        return replace(baseline, model=replace(baseline.model, model=model))

    assert line_of(folder, changed) == snapshot(
        [
            "changed models--encoder: size or opsets changed although the model is the same:",
            "  this is not what a recording writes; same model; also model facts",
        ]
    )


def test_a_twin_that_lost_its_trust_is_reported(folder: Path) -> None:
    def changed(baseline: Baseline) -> Baseline:
        fidelity = known(baseline.model.cases[0].fidelity)
        unclear = replace(fidelity, interval=(0.9, 1.1), is_trusted=False, reason="unclear")
        return with_case(baseline, fidelity=unclear)

    assert line_of(folder, changed) == snapshot(
        ["changed models--encoder: same model; twin no longer trusted (b1-c1)"]
    )


def test_another_plan_is_reported(folder: Path) -> None:
    def changed(baseline: Baseline) -> Baseline:
        return with_case(baseline, plan=StoredPlan(digest="0123", kernels=9, machine=MACHINE.key))

    assert line_of(folder, changed) == snapshot(
        ["changed models--encoder: same model; plan changed (b1-c1)"]
    )


def test_a_baseline_that_is_broken_on_one_side_is_named_and_the_others_shown(folder: Path) -> None:
    put(folder, replace(make_recording(), name="decoder"))
    (folder / "decoder" / "model.json").write_text("{", encoding="ascii")
    commit(folder)
    put(folder, make_recording(BOTH, version=2))
    (folder / "decoder" / "twin.onnx").unlink()
    review = review_baselines(folder, "main")
    assert [each.name for each in review.baselines] == [NAME]
    assert [(each.name, each.commit is None) for each in review.broken] == [
        ("decoder", False),
        ("decoder", True),
    ]
    # The commit's files are named by their own folder, and not by their place.
    assert all(f"{folder}/decoder/model.json" in each.problem for each in review.broken)


def test_links_of_a_commit_are_refused_as_those_on_disk_are(folder: Path, tmp_path: Path) -> None:
    (folder / "linked").mkdir()
    (folder / "linked" / "model.json").symlink_to(folder / NAME / "model.json")
    (folder / "whole").symlink_to(folder / NAME)
    commit(tmp_path)
    review = review_baselines(folder, "main")
    assert {each.name for each in review.broken} == {"linked", "whole"}
    assert all("is a link" in each.problem for each in review.broken)
    assert [each.name for each in list_baselines(folder).broken] == ["linked", "whole"]
