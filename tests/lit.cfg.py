"""lit configuration of the pass, dialect and emitter tests.

Parameters: kvforge_opt and filecheck are the two programs, exec_root is a
folder for temporary files outside the source tree.
"""
import os

import lit.formats

config.name = "kvforge"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = lit_config.params["exec_root"]
config.substitutions.append(("kvforge-opt", lit_config.params["kvforge_opt"]))
config.substitutions.append(("FileCheck", lit_config.params["filecheck"]))
