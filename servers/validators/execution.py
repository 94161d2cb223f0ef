"""Environment variables that decide what a process runs: its loader, interpreters, shells, package managers, tools.

Such a variable is part of the command. Only a person who may register commands can set one, as a variable of the
registration; a credential never provides one. The list errs on the safe side: a name that is on it needlessly can still
be set in the registration, sealed if it is a secret.
"""

import re
from fnmatch import translate
from typing import Final

#: what the variables of a group do: patterns of their names, in the case that programs read
_GROUPS: Final[dict[str, str]] = {
    "loads code into every process": """
        LD_* DYLD_* GLIBC_TUNABLES GCONV_PATH GETCONF_DIR LOCPATH NLSPATH LIBPATH SHLIB_PATH MALLOC_* HOSTALIASES RES_OPTIONS
        LOCALDOMAIN RESOLV_HOST_CONF TERMINFO TERMINFO_DIRS TERMCAP ASAN_* LSAN_* UBSAN_* TSAN_*
    """,
    "decides which programs, settings and files are found": """
        PATH HOME TMPDIR TMP TEMP XDG_* SHELL PWD OLDPWD PATHEXT COMSPEC SYSTEMROOT USERPROFILE APPDATA LOCALAPPDATA DBUS_*
        SYSTEMD_* NIX_* ASDF_* MISE_* CLASSPATH
    """,
    "makes a shell run code": """
        BASH_* ENV SHELLOPTS BASHOPTS PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND IFS CDPATH FPATH ZDOTDIR FCEDIT INPUTRC GLOBIGNORE
        EXECIGNORE FIGNORE HISTFILE POSIXLY_CORRECT FISH_* fish_*
    """,
    "makes Python load or run code": """
        PYTHON* PYENV_* VIRTUAL_ENV CONDA_* MAMBA_* PIPENV_* POETRY_* PDM_* HATCH_* PIPX_* PIP_* UV_* UVX_* RYE_*
        PYTEST_* TOX_* NOX_* COVERAGE_* PYDEVD_* DEBUGPY_* IPYTHONDIR JUPYTER_*PATH JUPYTER_*DIR MPLCONFIGDIR NUMBA_* SETUPTOOLS_* DISTUTILS_*
        DJANGO_SETTINGS_MODULE FLASK_APP CELERY_* GUNICORN_CMD_ARGS UVICORN_* OTEL_PYTHON_* PYSPARK_*
    """,
    "makes Node, Deno, Bun or Electron load or run code": """
        NODE_* NVM_* VOLTA_* FNM_* COREPACK_* BUN_* DENO_* ELECTRON_* TS_NODE_* TSX_* ESBUILD_* SWC_* BABEL_*
        PUPPETEER_* PLAYWRIGHT_* CHROME_* CHROMIUM_*
    """,
    "makes Perl load or run code": "PERL* PAR_*",
    "makes Ruby load or run code": "RUBY* GEM_* BUNDLE_* BUNDLER_* RBENV_* RAKEOPT IRBRC",
    "makes Java load or run code": """
        JAVA_* _JAVA_OPTIONS JDK_* JRE_* JVM_* MAVEN_* GRADLE_* JBANG_* SBT_* GROOVY_* KOTLIN_* SCALA_* CATALINA_*
    """,
    "makes .NET load or run code": "DOTNET_* COMPlus_* CORECLR_* COR_* MSBUILD* NUGET_* MONO_* DNX_*",
    "makes an interpreter load or run code": """
        PHPRC PHP_* COMPOSER_* LUA_* R_* RSTUDIO_* JULIA_* ERL_* ELIXIR_* MIX_* GHC* TCLLIBPATH TCL_* GUILE_* OCAML* CAML_*
        EMACSLOADPATH EMACSDATA VIMINIT GVIMINIT EXINIT VIM VIMRUNTIME MYVIMRC AWKPATH AWKLIBPATH AWK_* DART_* FLUTTER_*
    """,
    "decides what a compiler or build runs": """
        CC CXX CPP LD AR AS NM CFLAGS CXXFLAGS CPPFLAGS LDFLAGS LDSHARED PKG_CONFIG* CMAKE_* MESON* NINJA_STATUS MAKEFLAGS MFLAGS
        GNUMAKEFLAGS MAKEFILES CARGO_* RUSTC* RUSTFLAGS RUSTDOC* RUSTUP_* GOFLAGS GOPATH GOROOT GOPROXY GOTOOLDIR GOTOOLCHAIN
        GOENV GOBIN GOCACHE GOMODCACHE GOSUMDB GONOSUMDB GONOSUMCHECK GONOPROXY GOPRIVATE GOINSECURE GODEBUG CGO_* CCACHE_*
        M2_HOME M2_REPO
    """,
    "makes git, ssh or a version control tool run programs": "GIT_* SSH_* HG* SVN_* CVS_RSH RSYNC_* GNUPGHOME",
    "names a program that others start": """
        EDITOR VISUAL PAGER *_PAGER *_EDITOR *_BROWSER *_ASKPASS BROWSER MANPAGER MANPATH MANOPT LESS LESSOPEN LESSCLOSE
        LESSKEY* SUDO_* TAR_OPTIONS GZIP UNZIP ZIPOPT CURL_HOME WGETRC NETRC PSQLRC PGSERVICEFILE PGSYSCONFDIR PGPASSFILE
        GREP_OPTIONS MAIL MAILPATH MAILCAPS GH_PATH GH_CONFIG_DIR
    """,
    "makes a library load modules": """
        OPENSSL_* KRB5* SASL_* PKCS11_* P11_KIT_* ODBC* ORACLE_HOME TNS_ADMIN LIBGL_* LIBVA_* VDPAU_* VK_* GTK_* GDK_* GIO_*
        GST_* GI_* QT_* QML* SDL_* ALSA_* MAGICK_* GDAL_* PROJ_* VTK_* OCL_* OPENCL_* CUDA_* HADOOP_* SQLITE_*
    """,
    "names settings that run programs": """
        KUBECONFIG HELM_* DOCKER_* BUILDKIT_* BUILDX_* COMPOSE_* CONTAINER_* CONTAINERS_* PODMAN_* AWS_CONFIG_FILE
        AWS_SHARED_CREDENTIALS_FILE CLOUDSDK_* BOTO_CONFIG AZURE_CONFIG_DIR AZURE_EXTENSION_DIR
        GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES TF_* TERRAGRUNT_* ANSIBLE_* PULUMI_HOME VAULT_CONFIG_PATH
    """,
    "decides which certificates downloads and connections trust": """
        SSL_CERT_FILE SSL_CERT_DIR SSLKEYLOGFILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH
    """,
}  # fmt: skip
#: programs read these in upper or lower case
_ANY_CASE: Final[dict[str, str]] = {
    "makes a package manager load or run code": "npm_config_* npm_package_* npm_lifecycle_* npm_execpath npm_node_execpath yarn_* pnpm_*",
    "decides where downloads and connections go": "http_proxy https_proxy ftp_proxy all_proxy no_proxy",
}


def _compiled(groups: dict[str, str], flags: int = 0) -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile("|".join(translate(pattern) for pattern in patterns.split()), flags), effect)
        for effect, patterns in groups.items()
    ]


_PATTERNS: Final = [*_compiled(_GROUPS), *_compiled(_ANY_CASE, re.IGNORECASE)]


def effect_on_execution(variable: str) -> str:
    """How the variable affects what runs, such as "makes a shell run code"; empty if it is only data."""
    return next((effect for pattern, effect in _PATTERNS if pattern.match(variable)), "")
