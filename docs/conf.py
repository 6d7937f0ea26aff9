"""Sphinx settings. The site builds offline and its pages load nothing from elsewhere."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import cael

COMMANDS = Path(tempfile.mkdtemp(prefix="cael-docs-"))
"""Cells of %%bash call this `cael`: a kernel asks every program for colours, and a page shows plain text."""
(COMMANDS / "cael").write_text(
    f"#!/bin/sh\nexec env -u FORCE_COLOR -u CLICOLOR TERM=dumb {shlex.quote(sys.executable)} -c "
    '"from cael.cli import main; main()" "$@"\n'
)
(COMMANDS / "cael").chmod(0o755)
os.environ["PATH"] = os.pathsep.join([str(COMMANDS), str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ.update(NO_COLOR="1", TERM="dumb", COLUMNS="80", PYTHONIOENCODING="utf-8", CAEL_QUIET="1")
# Two kernels and their threads on two cores would wait for each other.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

project = "cael"
author = "The cael authors"
copyright = author
version = release = cael.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "jupyter_execute", "Thumbs.db", ".DS_Store"]
default_role = "py:obj"

html_theme = "furo"
html_title = f"cael {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"sidebar_hide_name": False}

# MathJax comes from the extension's own files; the default would be a content delivery network.
mathjax_path = "mathjax/tex-chtml.js"

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
myst_update_mathjax = False

logging.getLogger("traitlets").setLevel(logging.WARNING)  # one line for every page otherwise
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_execution_show_tb = True
nb_output_stderr = "warn"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
nb_merge_streams = True

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_type_aliases = {"ArrayLike": "ArrayLike", "Floats": "Floats", "Ints": "Ints", "Array": "Array"}
python_use_unqualified_type_names = True

FIELD = re.compile(r"^(?P<names>[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*) ?: ")


def as_restructured_text(app, what, name, obj, options, lines: list[str]) -> None:
    """Docstrings are plain text: escape what reStructuredText would take for markup, one paragraph per setting."""
    told: list[str] = []
    in_doctest = in_fields = False
    for line in lines:
        if line in ("Parameters", "----------"):
            continue
        if not line.strip():
            in_doctest = in_fields = False
        in_doctest = in_doctest or line.startswith(">>>")
        found = None if in_doctest else FIELD.match(line)
        if in_doctest:
            told.append(line)
        elif found and (in_fields or not told or not told[-1].strip()):
            names = ", ".join(f"**{escaped(each)}**" for each in found["names"].split(", "))
            told += ["", f"{names}: {escaped(line[found.end() :])}"]
            in_fields = True
        else:
            told.append(escaped(line.strip() if in_fields else line))
    lines[:] = told


def escaped(text: str) -> str:
    """Without bars, stars and trailing underscores that mean something; names in backquotes stay."""
    parts = re.split(r"(`[^`]*`)", text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"(?<!\\)([|*])", r"\\\1", parts[at])
        parts[at] = re.sub(r"(\w)_(?!\w)", r"\1\\_", parts[at])
    return "".join(parts)


def plain_types(app, what, name, obj, options, signature: str | None, returned: str | None):
    """Names of types as they are written in the source."""

    def clean(text: str | None) -> str | None:
        return None if text is None else re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)

    return clean(signature), clean(returned)


def with_estimators(text: str) -> str:
    """A page in which a line {{estimators}}, or one of a directive with it, stands for all that cael.estimators has."""
    names = [name for name in cael.estimators.__all__ if name != "Estimator"]
    line = re.compile(r"^.*\{\{estimators\}\}\n", re.MULTILINE)
    return line.sub(lambda found: "".join(found[0].replace("{{estimators}}", name) for name in names), text)


def fill_in(app, docname: str, source: list[str]) -> None:
    """The lists of names in a page that follow from the package."""
    source[0] = with_estimators(source[0])


def setup(app) -> None:
    app.connect("source-read", fill_in)
    app.connect("autodoc-process-docstring", as_restructured_text)
    app.connect("autodoc-process-signature", plain_types)
