#!/usr/bin/env python3
"""The checker is known to bite: one planted violation of each rule, and look-alikes that must pass."""
import contextlib
import pathlib
import tempfile
import unittest

import check_tree


@contextlib.contextmanager
def tree(**files):
    """A tree of {path with __ for / and a trailing _EXT for .EXT: text}."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            stem, extension = name.rsplit("_", 1)
            path = pathlib.Path(folder, stem.replace("__", "/") + "." + extension)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield folder


def rules(**files):
    with tree(**files) as folder:
        checker = check_tree.Checker(folder)
        checker.run()
        return [rule for _, _, rule, _ in checker.violations]


class EveryRuleBites(unittest.TestCase):
    def caught(self, rule, **files):
        self.assertEqual(rules(**files), [rule])

    def test_an_include_that_points_upward(self):
        self.caught("upward", base__a_hpp='#include "engine/plan/plan.hpp"\n')
        self.caught("upward", engine__model__a_cpp='#include "engine/control/vote.hpp"\n')
        self.caught("upward", kernels__a_cpp='#include <schemas/record.capnp.h>\n')
        self.caught("upward", cli__a_cpp='#include "tests/base/temporary_folder.hpp"\n')

    def test_a_foreign_library_outside_its_folder(self):
        for header, place in {
            "caf/actor.hpp": "engine/control", "boost/asio.hpp": "actors", "openssl/ssl.h": "cli",
            "ucp/api/ucp.h": "transport/shm", "nccl.h": "engine/pipeline", "cuda_runtime.h": "kernels/cpu",
            "oneapi/dnnl/dnnl.hpp": "engine/model", "hwy/highway.h": "base", "yaml-cpp/yaml.h": "cli",
            "CLI/CLI.hpp": "actors", "spdlog/spdlog.h": "actors",
        }.items():
            with self.subTest(header):
                self.caught("foreign", **{place.replace("/", "__") + "__a_cpp": f"#include <{header}>\n"})

    def test_every_foreign_library_is_planted_above(self):
        self.assertEqual(len(check_tree.FOREIGN), 11)

    def test_a_clock_a_sleep_or_randomness_outside_base(self):
        for rule, lines in {
            "clock": ["auto t = std::chrono::steady_clock::now();", "clock_gettime(CLOCK_MONOTONIC, &t);",
                      "auto t = time(nullptr);"],
            "sleep": ["std::this_thread::sleep_for(1ms);", "usleep(5);", "sleep(1);", "::sleep(1);"],
            "random": ["int r = rand();", "std::random_device seed;", "std::mt19937 g;",
                       "std::normal_distribution<> d;", "std::shuffle(a, b, g);"],
        }.items():
            for line in lines:
                with self.subTest(line):
                    self.caught(rule, actors__a_cpp=line + "\n")
                    self.caught(rule, tests__actors__a_cpp=line + "\n")
                    self.assertEqual(rules(base__a_cpp=line + "\n"), [])

    def test_a_thread_id_where_decisions_are_made(self):
        self.caught("thread-id", engine__pipeline__a_cpp="auto id = std::this_thread::get_id();\n")
        self.caught("thread-id", actors__a_cpp="auto id = gettid();\n")
        self.assertEqual(rules(transport__link__a_cpp="auto id = gettid();\n"), [])

    def test_an_order_that_is_not_a_function_of_the_contents_in_a_decision(self):
        self.caught("unordered", engine__control__a_hpp="std::unordered_map<int, int> m;\n")
        self.caught("unordered", engine__plan__a_hpp="std::unordered_set<int> m;\n")
        self.caught("pointer-order", engine__plan__a_hpp="std::map<const Node*, int> m;\n")

    def test_a_relative_include(self):
        self.caught("relative", engine__plan__a_cpp='#include "plan.hpp"\n')

    def test_another_header_before_the_own_one(self):
        self.caught("own-header", cli__a_cpp='#include <string>\n#include "cli/a.hpp"\n', cli__a_hpp="\n")

    def test_a_folder_that_no_layer_knows(self):
        self.caught("layer", util__a_hpp="\n")

    def test_a_link_that_points_upward(self):
        self.caught("link", base__CMakeLists_txt="kintsugi_library(low SOURCES a.cpp DEPENDS high)\n",
                    actors__CMakeLists_txt="kintsugi_library(high SOURCES a.cpp DEPENDS low)\n")
        self.caught("link", base__CMakeLists_txt="add_library(low a.cpp)\ntarget_link_libraries(low PUBLIC high)\n",
                    actors__CMakeLists_txt="add_library(high a.cpp)\n")

    def test_the_line_is_named(self):
        with tree(actors__a_cpp="\n// sleep(1)\nsleep(1);\n") as folder:
            checker = check_tree.Checker(folder)
            checker.run()
            self.assertEqual([v[:3] for v in checker.violations], [("actors/a.cpp", 3, "sleep")])


class WhatIsFinePasses(unittest.TestCase):
    def fine(self, **files):
        self.assertEqual(rules(**files), [])

    def test_downward_includes_and_libraries_at_home(self):
        self.fine(actors__a_cpp='#include "actors/a.hpp"\n#include <caf/actor.hpp>\n#include "engine/plan/plan.hpp"\n',
                  actors__a_hpp="\n", transport__ucx__b_cpp="#include <ucp/api/ucp.h>\n",
                  tests__actors__a_test_cpp="#include <caf/actor.hpp>\n", bench__peer_cpp="#include <dnnl.hpp>\n")

    def test_the_order_that_highway_wants(self):
        self.fine(kernels__cpu__a_cpp='#include <hwy/foreach_target.h>\n#include "kernels/cpu/a.hpp"\n',
                  kernels__cpu__a_hpp="\n")

    def test_comments_texts_and_look_alikes(self):
        self.fine(actors__a_cpp="""
// std::this_thread::sleep_for(1ms); #include "cli/a.hpp"
/* rand() and
   steady_clock::now() */
const char* text = "sleep(1); // rand()";
const char* raw = R"x(usleep(1); ")x";
int million = 1'000'000; int grand(int); int n = operand(2) + timer.time(0) + queue->sleep(1);
""")

    def test_a_line_that_says_why_it_must(self):
        self.fine(actors__a_cpp="sleep(1);  // lint-allow(sleep): the kernel offers no event here\n")
        self.assertEqual(rules(actors__a_cpp="sleep(1);  // lint-allow(sleep):\n"), ["sleep"])
        self.assertEqual(rules(actors__a_cpp="sleep(1);  // lint-allow(clock): wrong rule\n"), ["sleep"])

    def test_a_long_file_is_a_warning_only(self):
        with tree(actors__a_cpp="\n" * 401, actors__b_cpp="\n" * 400) as folder:
            checker = check_tree.Checker(folder)
            self.assertTrue(checker.run())
            self.assertEqual(checker.warnings, [("actors/a.cpp", 401)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
