"""The site: `make docs` writes build/docs with Sphinx, MyST-NB and sphinx-design."""

import os
import subprocess
import sys
from pathlib import Path

import anyjax

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
BUILD = ROOT / "build"

project = "anyjax"
author = "the anyjax authors"
copyright = "the anyjax authors"
version = release = anyjax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_llm.txt",
    "parameters",  # parameters.py
]
exclude_patterns = ["README.md"]

# Pages are Markdown; those that begin with `file_format: mystnb` are notebooks.
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

# Notebooks run once and are kept in the cache until their code changes; an error ends the build.
nb_execution_mode = os.environ.get("ANYJAX_DOCS_EXECUTE", "cache")
suppress_warnings = ["ref.python"]  # types are called by their last name: there are three Reports
if nb_execution_mode == "off":
    suppress_warnings += ["myst-nb.lexer"]  # only a kernel says which language it speaks
nb_execution_cache_path = str(BUILD / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_output_stderr = "remove-warn"
nb_render_image_options = {"width": "70%", "align": "center"}

# The kernels of notebooks: a CPU of eight devices, no network, the repository's root as folder.
STARTUP = BUILD / "ipython" / "profile_default" / "startup"
STARTUP.mkdir(parents=True, exist_ok=True)
(STARTUP / "root.py").write_text(f"""\
import os, warnings
os.chdir({str(ROOT)!r})
warnings.filterwarnings("ignore", "IProgress not found")  # bars are text
get_ipython().run_line_magic("config", "InlineBackend.figure_formats = ['svg']")
get_ipython().InteractiveTB.set_mode("Minimal")  # an error is its own lines
""")
os.environ |= {
    "IPYTHONDIR": str(STARTUP.parents[1]),
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_OFFLINE": "1",
    "JAX_PLATFORMS": "cpu",
    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}

autodoc_member_order = "bysource"
autodoc_typehints = "description"  # beside each argument; signatures stay short
autodoc_typehints_description_target = "documented"
autodoc_type_aliases = {  # by these names, not by what they are made of
    "ArrayLike": "anyjax.typing.ArrayLike",
    "Output": "anyjax.typing.Output",
    "PyTree": "PyTree",
    "TorchOutput": "anyjax.typing.TorchOutput",
}
python_use_unqualified_type_names = True
autodoc_class_signature = "separated"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_attr_annotations = False

html_theme = "sphinx_book_theme"
html_title = "anyjax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "home_page_in_toc": True,
    "navbar_persistent": [],  # the sidebar has the search
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "use_download_button": True,
    "use_fullscreen_button": False,
}
# A link to the repository, where the clone was made of a public one.
ORIGIN = subprocess.run(
    ["git", "config", "--get", "remote.origin.url"], cwd=ROOT, capture_output=True, text=True
).stdout.strip()
if ORIGIN.startswith("https://"):
    html_theme_options |= {
        "repository_url": ORIGIN.removesuffix(".git"),
        "use_repository_button": True,
    }
llms_txt_build_parallel = False  # it finds the notebooks in the cache
llms_txt_suffix_mode = "replace"  # page.md beside page.html
llms_txt_suppress_unknown_node_warnings = True
llms_txt_description = "PyTorch, Hugging Face, TensorFlow, ONNX and StableHLO models in JAX."
