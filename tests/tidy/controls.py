"""For each rule: small trees that it must complain about, and one that it must accept."""
HEADER = "// Thing: what it is and whose.\n#pragma once\n"
ROWS = "".join(f"| {letter}{n} | promise | issue: x |\n" for letter, count in
               {"E": 13, "A": 11, "H": 10, "P": 16, "Q": 9, "W": 11, "T": 5, "C": 5, "M": 7, "U": 2, "O": 3, "X": 4}.items()
               for n in range(1, count + 1))
SHOWN = ROWS.replace("| E7 | promise | issue: x |", "| E7 ★ | promise | test [E7] |")


def body(lines):
    return "int f(int a) noexcept {\n" + "  ++a;\n" * (lines - 2) + "}\n"


# rule name -> (trees that must fail, trees that must pass)
CONTROLS = {
    "include_direction": (
        [{"engines/a.cc": '#include "protocols/h1/parser.h"\n'}, {"config/a.cc": '#include "engines/op.h"\n'},
         {"protocols/a.cc": '#include "daemon/worker.h"\n'}, {"engines/a.cc": '#include "op.h"\n'}],
        [{"protocols/a.cc": '#include "engines/op.h"\n', "daemon/a.cc": '#include "config/load.h"\n'}]),
    "third_party": (
        [{"daemon/a.cc": "#include <yaml-cpp/yaml.h>\n"}, {"engines/epoll_engine.cc": "#include <liburing.h>\n"},
         {"protocols/h1/a.cc": "#include <nghttp2/nghttp2.h>\n"}, {"daemon/worker.cc": "#include <spdlog/spdlog.h>\n"},
         {"daemon/a.cc": "#include <boost/asio.hpp>\n"}, {"daemon/router.cc": "#include <re2/re2.h>\n"}],
        [{"config/yaml_reader.cc": "#include <yaml-cpp/yaml.h>\n", "engines/uring_ring.cc": "#include <liburing.h>\n",
          "daemon/log.cc": "#include <spdlog/spdlog.h>\n", "engines/a.cc": "#include <sys/socket.h>\n#include <array>\n"}]),
    "file_length": ([{"engines/a.cc": "\n" * 801}, {"dev": "\n" * 801}], [{"engines/a.cc": "\n" * 800, "docs/a.md": "\n" * 900}]),
    "function_length": (
        [{"engines/a.cc": "namespace weir {\n" + body(71) + "}\n"},
         {"daemon/a.cc": "struct S {\n  int g = 0;\n" + body(71) + "};\n"}],
        [{"engines/a.cc": "namespace weir {\n" + body(70) + body(70) + "}\n"},
         {"engines/a.cc": "struct S {\n" + "  int x = 0;\n" * 90 + "};\n"}]),
    "columns": ([{"engines/a.cc": "x" * 133}], [{"engines/a.cc": "x" * 132, "tests/a.cc": "x" * 140, "docs/a.md": "x" * 200}]),
    "banned": (
        [{"engines/a.cc": "std::shared_ptr<int> p;\n"}, {"protocols/a.cc": "std::function<void()> f;\n"},
         {"daemon/worker.cc": "throw 1;\n"}, {"engines/a.cc": 'printf("x");\n'}, {"protocols/a.cc": "std::cout << 1;\n"},
         {"daemon/router.cc": "std::thread t;\n"}, {"daemon/a.cc": "::close(fd);\n"}, {"protocols/a.cc": "close(listen_fd_);\n"},
         {"protocols/a.cc": "::send(fd, p, n, 0);\n"}, {"engines/loop.cc": "std::chrono::steady_clock::now();\n"},
         {"engines/uring_ring.cc": "IORING_SETUP_SQPOLL;\n"}, {"tests/a.cc": "// TO" "DO: later\n"}],
        [{"config/a.cc": "throw Error();\n", "engines/a.cc": '// throw, printf("x")\nconst char* s = "shared_ptr";\n',
          "daemon/supervisor.cc": "std::jthread t;\n", "protocols/a.cc": "loop.close(socket);\nvoid X::close(Reason r) {}\n",
          "engines/clock.cc": "std::chrono::steady_clock::now();\n", "engines/socket.cc": "::close(fd);\n"}]),
    "header_contract": (
        [{"engines/a.h": "#pragma once\n"}, {"engines/a.h": "// What it is.\n#include <array>\n"},
         {"engines/a.h": "// x\n" * 13 + "#pragma once\n"}],
        [{"engines/a.h": HEADER, "engines/b.h": "// x\n" * 12 + "\n#pragma once\n"}]),
    "readme": ([{"protocols/h1/a.h": HEADER, "protocols/README.md": ""}], [{"engines/a.h": HEADER, "engines/README.md": ""}]),
    "listed": (
        [{"engines/a.cc": "", "engines/meson.build": "files('b.cc')"}, {"tests/unit/config/a_test.cc": ""}],
        [{"engines/a.cc": "", "engines/meson.build": "files('a.cc')", "daemon/main.cc": ""}]),
    "requirements": (
        [{"docs/requirements.md": ROWS.replace("| E13 |", "| E99 |")},
         {"docs/requirements.md": ROWS, "tests/a.cc": 'TEST_CASE("x", "[E7]")'},
         {"docs/requirements.md": ROWS, "tests/a.cc": 'TEST_CASE("x", "[fd][Z9]")'},
         {"docs/requirements.md": SHOWN},
         {"docs/requirements.md": ROWS.replace("| E9 | promise | issue: x |", "| E9 | promise | e2e |")},
         {"docs/requirements.md": ROWS, "tests/e2e/a.py": '@case(["E9"])\n'},
         {"docs/requirements.md": ROWS.replace("| E9 | promise | issue: x |", "| E9 | promise |  |")}],
        [{"docs/requirements.md": SHOWN, "tests/a.cc": 'TEST_CASE("x", "[engine][E7]")'},
         {"docs/requirements.md": ROWS.replace("| E9 | promise | issue: x |", "| E9 | promise | e2e |"),
          "tests/e2e/half_close.py": '@case(["E9"])\n'}]),
}
