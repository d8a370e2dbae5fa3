"""The documentation site: `make docs` builds it into build/site, where it can be read without server or network."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # notebooks call scansnap

project = "scansnap"
author = copyright = "The scansnap developers"
release = metadata.version("scansnap")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "_site.accessible",
    "_site.commands",
    "_site.entries",
    "_site.found",
    "_site.live",
    "_site.mathml",
    "_site.names",
]
exclude_patterns = ["_site", "data"]
suppress_warnings = ["toc.empty_glob"]  # docs/systems may have no page

myst_enable_extensions = ["dollarmath", "deflist", "attrs_block"]
myst_heading_anchors = 4
highlight_language = "none"  # what commands print is no Python

nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_output_stderr = "remove"  # progress
nb_merge_streams = True
nb_ipywidgets_js = {}  # its scripts would come from the network

autodoc_typehints = "signature"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "FloatArray", "SparseRows")}
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
default_role = "literal"
maximum_signature_line_length = 90

html_theme = "furo"
html_math_renderer = "mathml"
html_title = "scansnap"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_show_search_summary = False  # it would be fetched, which a page that is a file may not do
