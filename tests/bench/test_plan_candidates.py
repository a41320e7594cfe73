"""The options of bench, and its candidates: proposals, refusals, and the words that repeat a candidate."""

import shlex
import tomllib
from pathlib import Path

import pytest

from ompbind.bench.candidates import LIMIT, MOST, make_combinations, make_proposal
from ompbind.bench.plan_candidates import make_starts
from ompbind.bench.records import Kind, Rules
from ompbind.bench.verb import VERB, make_rules, render_preset
from ompbind.cli.settings import make_planning_settings, make_request, make_run_spec
from ompbind.commands.rank_command import make_commands, make_spec_before_plan
from ompbind.cpuset import CpuSet
from ompbind.errors import OmpbindError, RequestError
from ompbind.machine.model import CoreKind
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.programs.command import Workload
from ompbind.programs.libraries import DetectedLibrary, DetectionMethod, name_library
from tests.cli.command_lines import read, read_bench
from tests.machines import Shape, make_machine
from tests.tables import rows

LIBRARY = next(
    line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line
)
"""A library that exists, to be preloaded."""

XEON = make_machine(Shape(packages=2, cores=8, smt=2))
VM = make_machine(Shape(cores=2))


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("LD_PRELOAD", "PYTHONPATH", "OMP_PLACES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def make(words, machine=XEON):
    starts, refusals = make_starts(read_bench(*shlex.split(words)), machine, make_plan)
    by_name = {start.candidate.name: start for start in starts}
    assert len(by_name) == len(starts)
    return by_name, {refusal.name: refusal.reason for refusal in refusals}


@pytest.mark.parametrize(("words", "names"), [
    ("--vary 'smt = 1 , 2'", "smt=2"), ("--vary 'mask=0,2;'", "mask=0,2"),
    ("-n 2 --vary bind=rank,thread", "bind=thread"),
    ("--vary mask=0-3;0,2", "mask=0-3|mask=0,2"),
    ("--vary mask=none,all", "mask=none|mask=all"),
    (f"--preload {LIBRARY} --vary preload=none", "preload=none"),
    ("--vary env=A=1,A=2 --vary env=B=1", "env=A=1, env=B=1|env=A=2, env=B=1"),
    ("--vary keep-env=no,yes --vary threads=4", "keep-env=no, threads=4"),
    ("--vary ranks=auto --vary strategy=packages", ""),
    ("--smt all", "bind=thread|memory=interleave"),
])  # fmt: skip
def test_names(words, names):
    assert list(make(words)[0]) == ["unbound", "default", *filter(None, names.split("|"))]


def test_equal_plans_are_one_candidate_unless_variables_differ():
    found, _ = make("--vary smt=auto,1,2,all --vary strategy=balanced,spread")
    assert list(found) == ["unbound", "default", "smt=2, strategy=balanced"]
    assert [found[name].candidate.same for name in ("default", "smt=2, strategy=balanced")] == [
        tuple(f"smt={smt}, strategy={each}" for smt in ("auto", "1") for each in ("balanced", "spread")),
        ("smt=2, strategy=spread", "smt=all, strategy=balanced", "smt=all, strategy=spread"),
    ]
    found, _ = make("--vary env=A=1,A=2")
    assert found["env=A=1"].candidate.cpus == found["env=A=2"].candidate.cpus
    assert found["env=A=1"].commands[0].env["A"] == "1"


@pytest.mark.parametrize(("words", "machine", "names", "reason"), [
    ("--vary ranks=1,4 --vary smt=2", VM, "4 ranks, default|4 ranks, smt=2", "4 ranks do not fit"),
    ("--vary ranks=1,2", VM.replace(quota=1.5), "2 ranks, default", "the CPU quota of the cgroup is 1.5"),
    ("--vary threads=1,2", VM.replace(quota=1.0), "threads=2", "the CPU quota of the cgroup is 1:"),
    ("--vary mask=0,7", VM, "mask=7", "CPU 7 does not exist on this machine"),
    ("--vary strategy=nodes,l2 -n 2", VM, "strategy=l2", "this machine has no l2 domains"),
    ("-c 1 --vary strategy=spread,all", VM, "strategy=all", "--cores 1 has no effect"),
])  # fmt: skip
def test_what_cannot_run_is_refused_with_its_reason(words, machine, names, reason):
    found, refused = make(words, machine)
    assert list(refused) == names.split("|")
    assert all(text.startswith(reason) for text in refused.values())
    assert [start.candidate.kind for start in found.values()][:2] == [Kind.UNBOUND, Kind.DEFAULT]


def test_the_command_without_ompbind_has_no_plan(monkeypatch):
    for setting in ("OMP_NUM_THREADS=7", "OMPBIND_SMT=1", "OMPBIND_METRIC='x: (.*)'", "OMPBIND_CPUS=5"):
        monkeypatch.setenv(*setting.split("=", 1))
    filled = "--wrap 'nice {rank}' --chdir /d{rank} --env PORT={rank+80} --env 'C={cpus} {threads}'"
    found, _ = make(f"-n 2 --vary smt=2 --preload {LIBRARY} --freeze-threads {filled}")
    commands, unbound = found["unbound"].commands, found["unbound"].candidate
    assert found["unbound"].plan is None
    assert unbound.cpus == unbound.options == ()
    assert [command.argv for command in commands] == [("nice", "0", "true"), ("nice", "1", "true")]
    assert [command.directory for command in commands] == ["/d0", "/d1"]
    assert [command.cpus for command in commands] == [command.memory for command in commands] == [None, None]
    env = commands[1].env
    own = "ATTEMPT", "RANK", "RUNTIME_DIR", "RUN_ID", "WORKER_NAME"
    assert {name for name in env if name.startswith("OMPBIND_")} == {f"OMPBIND_{name}" for name in own}
    expected = {"RANK": "1", "WORLD_SIZE": "2", "PORT": "81", "C": "0-31 32", "OMP_NUM_THREADS": "7"}
    assert env.items() >= (expected | {"OMPBIND_RANK": "1", "OMPBIND_RUN_ID": "test"}).items()
    assert not env.keys() & {"OMP_PLACES", "LD_PRELOAD", "PYTHONPATH"}
    assert not found["smt=2"].commands[0].env.keys() & {"OMPBIND_SMT", "OMPBIND_METRIC"}


@pytest.mark.parametrize("words", [
    "--vary ranks=1,2,auto --vary strategy=balanced,nodes,cores --vary smt=1,all",
    "-n 2 --vary bind=rank,thread,core,exact,none --vary proc-bind=close",
    "-n 2 --reserve 1 --vary 'mask=0-15;0-3|8-11;16-23,0-7' --vary service-cores=0,1",
    "-c 2 -n 3 --vary strategy=compact,spread --vary memory=local,interleave,bind --vary threads=none,1",
    "--env A=1 --vary env=A=2,B={rank} --vary keep-env=yes,no --chdir /tmp --wrap 'nice -n {rank}'",
])  # fmt: skip
@pytest.mark.parametrize("machine", [XEON, make_machine(Shape(packages=2, nodes=2, cores=4))])
def test_run_with_these_words_gives_the_same_commands(words, machine):
    planned = [start for start in make(words, machine)[0].values() if start.plan]
    assert len(planned) > 1
    for start in planned:
        planning = make_planning_settings(read("run", *start.candidate.options))
        spec = make_run_spec(planning, "test")
        plan = make_plan(machine, make_request(planning, make_spec_before_plan(spec), machine))
        assert make_commands(plan, spec) == list(start.commands)


def test_words_reset_what_variables_and_files_give(monkeypatch, tmp_path):
    (tmp_path / "ompbind").mkdir()
    (tmp_path / "ompbind/ompbind.toml").write_text('[defaults]\nsmt = "2"\navoid = true\n')
    monkeypatch.setenv("OMPBIND_PRELOAD", LIBRARY)
    found, _ = make("--vary preload=none --vary smt=none --vary share=no")
    start, default = found["preload=none, smt=none, share=no"], found["default"].candidate
    assert shlex.join(start.candidate.options) == "--no-smt --no-share --no-preload"
    assert "LD_PRELOAD" not in start.commands[0].env
    assert (start.candidate.threads, default.options, default.threads) == (16, (), 32)
    for words in ("--hold", "--hold=fixed"):
        assert make(f"{words} --fill")[0]["default"].candidate.options == (words, "--fill")


def test_digests_are_equal_in_all_sessions_and_differ_between_candidates(monkeypatch):
    def digests(words):
        words += " -n 2 --env NAME={run_id} --vary smt=1,2 --vary bind=rank,thread"
        return [start.candidate.digest for start in make(words)[0].values()]

    first = digests("--run-id a")
    monkeypatch.setenv("SHLVL", "9")
    assert first == digests("--run-id b")
    assert len(set(first)) == len(first) == 5
    held = digests("--hold")
    monkeypatch.setenv("OMPBIND_HOLD", "1")
    assert digests("") == held
    assert [old == new for old, new in zip(first, held, strict=True)] == [True, False, False, False, False]
    monkeypatch.delenv("OMPBIND_HOLD")
    monkeypatch.setenv("OMP_NUM_THREADS", "9")  # only the command without ompbind inherits it
    equal = [old == new for old, new in zip(first, digests(""), strict=True)]
    assert equal == [False, True, True, True, True]


LAPTOP = tuple(
    CoreKind(name=name, cpus=CpuSet(range(*cpus)), strength=strength, source="type")
    for name, cpus, strength in (("performance", (0, 2), 1024), ("efficiency", (2, 6), 600))
)
MACHINES = {
    "xeon": XEON, "vm": VM, "small": make_machine(Shape(cores=1)),
    "epyc": make_machine(Shape(packages=2, nodes=4, l3s=2, cores=4)),
    "power": make_machine(Shape(packages=2, cores=4, smt=8, numbering="adjacent")),
    "laptop": make_machine(Shape(cores=6), kinds=LAPTOP),
}  # fmt: skip


def propose(machine, *fixed, **request):
    made = make_proposal(machine, Request(**request), ("ranks", *fixed))
    return [", ".join(f"{key}={text}" for key, text in choices) for choices in made]


@pytest.mark.parametrize(("name", "numbers", "expected"), [
    ("xeon", "1 2", ["", "smt=all", "bind=thread", "memory=interleave", "smt=all, bind=thread"]),
    ("epyc", "1 2 8 16", ["", "bind=thread", "memory=interleave"]),
    ("power", "1 2", ["", "smt=all", "smt=1", "smt=2", "bind=thread", "memory=interleave",
                      "smt=all, bind=thread", "smt=1, bind=thread", "smt=2, bind=thread"]),
    ("laptop", "1 2 4", ["", "core-kind=performance", "bind=thread", "core-kind=performance, bind=thread"]),
    ("vm", "1 2", ["", "bind=thread"]), ("small", "1", [""]),
])  # fmt: skip
def test_choices_fit_the_machine_and_numbers_of_ranks_follow_the_domains(name, numbers, expected):
    assert propose(MACHINES[name]) == expected
    made = make_proposal(MACHINES[name], Request(), ())
    numbers = numbers.split()
    assert made[: len(numbers)] == tuple((("ranks", number),) for number in numbers)
    assert {dict(choices)["ranks"] for choices in made} == {*numbers}
    assert len(made) <= MOST


def test_given_options_do_not_vary_and_the_quota_is_kept():
    assert propose(XEON, "smt", "memory", smt="all") == ["", "bind=thread"]
    assert propose(XEON, "bind", bind=Bind.EXACT) == ["", "smt=all", "memory=interleave"]
    assert propose(XEON, mask=parse_mask("none")) == [""]
    assert propose(XEON, mask=parse_mask("0-3,16-19")) == ["", "smt=1", "bind=thread", "smt=1, bind=thread"]
    assert propose(XEON, ranks=2, mask=parse_mask("0-3|8-11")) == ["", "bind=thread"]
    assert propose(VM.replace(quota=1.5)) == ["", "bind=thread"]
    assert propose(VM, ranks=2, strategy="all") == ["", "bind=thread"], "ranks wait passively already"
    other = LiveRun(run_id="r", pid=1, uid=1, started=1, claimed=VM.allowed)
    for policy in ((), (("KMP_LIBRARY", "serial"),)):
        request = Request(user_variables=policy)
        made = make_proposal(VM, request, ("ranks",), lambda *planned: make_plan(*planned, [other]))
        assert (("env", "OMP_WAIT_POLICY=passive"),) in made or policy
        assert len(made) == (2 if policy else 3)
    made = make_proposal(VM.replace(quota=1.0), Request(), ())
    assert {dict(choices)["ranks"] for choices in made} == {"1"}


@pytest.mark.parametrize(("name", "request_fields", "counts"), [
    ("xeon", {}, "1 8"), ("vm", {}, "1"), ("xeon", {"ranks": 2}, "1 4"), ("xeon", {"smt": "all"}, "1 16"),
    ("small", {}, ""), ("xeon", {"mask": parse_mask("none")}, ""),
])  # fmt: skip
@pytest.mark.parametrize("library", ["libgomp.so.1", "libscipy_openblas64_-a1.so", "libtcmalloc.so"])
def test_fewer_threads_are_proposed_for_a_program_with_a_pool(name, request_fields, counts, library):
    found = DetectedLibrary(library=name_library(library), method=DetectionMethod.NEEDED, origin="app")
    made = propose(MACHINES[name], workload=Workload(libraries=(found,)), **request_fields)
    threads = [f"threads={number}" for number in counts.split()] if "tcmalloc" not in library else []
    assert [choice for choice in made if "threads" in choice] == threads
    assert "threads" not in "".join(propose(MACHINES[name], "threads", workload=Workload(libraries=(found,))))


def test_combinations_vary_the_last_option_fastest_and_have_a_limit():
    found = make_combinations([("smt", ("1", "2")), ("bind", ("rank", "thread"))])
    words = [" ".join(value for _, value in choices) for choices in found]
    assert words == ["1 rank", "1 thread", "2 rank", "2 thread"]
    assert make_combinations([]) == ()
    many = tuple(map(str, range(1000)))
    with pytest.raises(RequestError, match=f"1000000000 combinations .* {LIMIT}"):
        make_combinations([("threads", many), ("cores", many), ("reserve", many)])
    assert len(make_combinations([("threads", many[:LIMIT])])) == LIMIT


WRONG = """
--vary smt=1,x                  | --vary: smt: 'x' is wrong                                        | x
--vary bind=rank,cor            | --vary: bind: 'cor' is not rank, core, thread, exact or none     | cor
--vary 'mask=0;1,5-'            | --vary: mask: a number is missing                                |
--vary env=A                    | --vary: env: 'A' is not NAME=VALUE                               | A
--vary share=perhaps            | --vary: share: 'perhaps' is not yes or no                        | perhaps
--vary stratgy=spread           | --vary: 'stratgy' is not the long name of an option              | stratgy
--vary timeout=1                | --vary: 'timeout' is not the long name of an option              | timeout
--vary topology=a               | --vary: --topology cannot be varied                              | topology
--vary run-id=a                 | --vary: --run-id cannot be varied                                | run-id
--vary preset=a                 | --vary: --preset cannot be varied                                | preset
--vary ''                       | --vary: the option is missing                                    |
--vary smt                      | --vary: smt has no values                                        | smt
--vary =1,2                     | --vary: the option is missing                                    |
--vary smt=1,,2                 | --vary: a value of smt is missing                                |
--vary 'smt=1,2, 1'             | --vary: smt has the value 1 twice                                | 1
--vary smt=1 --vary smt=2       | --vary: smt is varied twice
--matters 2                     | --matters: '2' is not a number below 1 or a percentage
--max-rounds 1001               | --max-rounds: '1001' is not a whole number from 1 to 1,000
--matters 200%                  | --matters: '200%' is not a number below 1 or a percentage
--budget 0                      | --budget: the time must be longer than 0
--metric a(                     | --metric: wrong regular expression: missing ), unterminated subpattern
--metric a                      | --metric: the pattern has no group
--ready tcp:0                   | --ready: '0' is not a port
--ready tcp:{rang}              | --ready: unknown placeholder {rang}
--export pdf                    | --export: 'pdf' is not json, csv, markdown or svg
--export svg=                   | --export: the name of a file is missing
--higher                        | --higher has no effect without --metric
--ready up                      | --ready up has no effect without --name
--fail-above 5%                 | --fail-above 5% has no effect without --show
--show --dry-run                | --show and --dry-run contradict each other
--vary -t=1,2                   | --vary: the value is missing: the next word is -t=1,2
--vary=-t=1,2                   | --vary: write the long name without dashes
--export csv --export json      | --export csv,json writes several formats to standard output
--export csv --format jsonl     | --export csv and --format jsonl write to standard output
--show -n 2                     | --ranks 2 has no effect with --show
--show --vary smt=1             | --vary smt=1 has no effect with --show
--topology x.xml                | --topology: candidates can only run on this machine
--run-id outer                  | --run-id outer: the enclosing run has this name
"""


@pytest.mark.parametrize("row", rows(WRONG), ids=lambda row: row[0])
def test_wrong_values_show_their_position_and_options_without_effect_are_refused(row, monkeypatch):
    words, message, *marked = row
    monkeypatch.setenv("OMPBIND_RUN_ID", "outer")
    with pytest.raises(OmpbindError) as error:
        VERB.run(read("bench", *shlex.split(words)))
    assert error.value.message.startswith(message)
    if marked:
        assert error.value.text[slice(*error.value.span)] == marked[0]


def test_a_found_project_file_varies_no_variable(tmp_path):
    """The file may come from another user."""
    lines = ["[defaults]", 'smt = "2"', 'metric = "(.*)"', 'vary = "env=LD_PRELOAD=x"']
    (tmp_path / "ompbind.toml").write_text("\n".join(lines))
    context = read("bench")
    assert (context.params["smt"], context.params["vary"]) == (2, ())
    assert "defaults.metric, defaults.vary have no effect" in context.messages[0]


def test_the_rules_of_a_session():
    rated = read_bench("--metric", "rate: ([0-9.]+)", "--higher")
    assert (rated.metric, rated.higher) == (("rate: ([0-9.]+)",), True)
    assert make_rules(read_bench("--seed", "0")) == Rules(
        same_work=False, matters=0.02, max_rounds=40, seed=0
    )
    assert make_rules(rated).same_work
    for words, rounds in ((["--budget", "1m"], 1000), (["--budget", "1m", "--max-rounds", "40"], 40)):
        assert make_rules(read_bench(*words)).max_rounds == rounds
    assert len({make_rules(rated).seed for _ in range(5)}) == 5


PRESETS = [
    ("--ranks 2 --smt 2", {"ranks": 2, "smt": 2}), ("--ranks auto", {"ranks": "auto"}),
    ("--mask 0-1|2-3 --strict", {"mask": "0-1|2-3", "strict": True}),
    ("--no-strict --no-threads", {"no-strict": True, "no-threads": True}),
    ("--no-preload --preload tcmalloc --preload a,b", {"no-preload": True, "preload": ["tcmalloc", "a,b"]}),
    ("--hold --smt 2", {"hold": True, "smt": 2}), ("--hold=fixed", {"hold": "fixed"}),
    ("--env A=1 --env B=x=y", {"env": {"A": "1", "B": "x=y"}}), ("--no-env", {"no-env": True}),
    ("--chdir /tmp/{rank} --fill --wrap 'sh -c \"x\"'",
     {"chdir": "/tmp/{rank}", "fill": True, "wrap": 'sh -c "x"'}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "table"), PRESETS)
def test_the_lines_of_a_preset_have_the_options_of_a_candidate(line, table, tmp_path):
    words, file = shlex.split(line), tmp_path / "a.toml"
    text = render_preset("fast", words)
    assert tomllib.loads(text) == {"preset": {"fast": table}}
    file.write_text(text)
    expected, found = (
        read("run", *options).params for options in (words, ("--config", str(file), "--preset", "fast"))
    )
    assert {name for name in expected if expected[name] != found[name]} <= {"config", "preset"}
