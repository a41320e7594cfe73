"""Tests that must fail with --hold (`make test-all PARTS=hold`), and why. One that passes is an error."""

ESCAPES = "threads leave the CPUs of their rank"
SETUID = "a program gets the rights of another user"
NEEDS_PROC = "--hold takes /proc"
COMPARED = "with --hold is compared with without"
RECORDED = "a plan contains --hold"

ENDS = "test_run_ends.py::test_each_run_has_the_exit_code_last_line_and_report_of_the_table"

NOT_HELD = (
    ("test_allocations.py::test_a_rank_outside_of_its_outer_rank_is_warned_about", "", ESCAPES),
    ("test_bench_runs.py::test_the_warm_up_and_every_tenth_round_are_verified", "unbinds itself", ESCAPES),
    ("test_elsewhere.py::test_a_failing_rank_takes_its_group_and_the_others_down", "", "--hold takes ctypes"),
    ("test_hold.py::test_a_program_stays_on_the_cpus_of_its_rank_only_with_hold", "", COMPARED),
    ("test_hold.py::test_verify_and_the_report_show_what_was_held", "-125", COMPARED),
    ("test_inspect.py::test_a_title_over_the_environment_is_no_changed_variable", "exec",
        "exec cannot hold ranks and bind their threads"),
    ("test_inspect.py::test_threads_that_leave_their_rank_are_found", "", ESCAPES),
    ("test_json_formats.py::test_values_are_as_recorded", "plan", RECORDED),
    ("test_json_formats.py::test_values_are_as_recorded", "line", RECORDED),
    ("test_limits.py::test_isolated_surroundings", "pid 1 with foreign /proc", NEEDS_PROC),
    ("test_limits.py::test_isolated_surroundings", "no /proc", NEEDS_PROC),
    ("test_limits.py::test_isolated_surroundings", "an empty /proc", NEEDS_PROC),
    ("test_python_interface.py::test_environments_equal_those_of_ompbind_run", "",
        "ranks do not get the variables of options, such as OMPBIND_HOLD"),
    (ENDS, "there was an error, strict", ESCAPES),
    (ENDS, "there was an error]", ESCAPES),
    (ENDS, "there was an error, then", ESCAPES),
    (ENDS, "there was an error before a restart", ESCAPES),
    (ENDS, "rank 0 exited with 3, and rank 1 had an error", ESCAPES),
    (ENDS, "`/proc` does not show the ranks", NEEDS_PROC),
    ("test_strangers.py::test_no_process_is_killed_that_only_has_the_number_of_a_child_in_a_foreign_proc", "",
        NEEDS_PROC),
    ("test_two_users.py::test_a_timeout_is_a_limit_also_for_a_rank_that_may_not_be_signalled", "", SETUID),
    ("test_verify.py::test_daemons_belong_to_their_rank", "", ESCAPES),
    ("test_verify.py::test_ranks_that_become_another_user_are_not_seen_with_hidepid", "", SETUID),
    ("test_wrappers.py::test_taskset_replaces_the_mask_as_the_warning_says", "", ESCAPES),
)  # fmt: skip
"""File and name of a test, how the name of its case begins ("" for all cases), and the reason."""


def find_reason(name: str) -> str | None:
    """Return why a test must fail, by its file and name; None if it must not."""
    test, _, case = name.partition("[")
    reasons = (why for known, start, why in NOT_HELD if test == known and case.startswith(start))
    return next(reasons, None)
