"""Runs the unittest cases of one Python file and prints TAP. usage: unittest_tap.py FILE [ARGUMENT...]"""

import importlib.util
import sys
import unittest


class Tap(unittest.TestResult):
    def line(self, word, test, detail=""):
        print("%s %d - %s" % (word, self.testsRun, test.id().split(".", 1)[1].replace("_", " ")))
        for text in detail.splitlines():
            print("# " + text)

    def addSuccess(self, test):
        self.line("ok", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.line("not ok", test, self.failures[-1][1])

    def addError(self, test, error):
        super().addError(test, error)
        self.line("not ok", test, self.errors[-1][1])


def main():
    sys.argv.pop(0)
    spec = importlib.util.spec_from_file_location("tests", sys.argv[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suite, result = unittest.defaultTestLoader.loadTestsFromModule(module), Tap()
    print("1..%d" % suite.countTestCases())
    suite.run(result)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
