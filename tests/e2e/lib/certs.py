"""Certificates for a case: made with the openssl command, once for each wish in one run of the harness (EC keys: milliseconds)."""
import os
import shutil
import subprocess
import tempfile
import threading

from .case import Skip

_made = {}
_lock = threading.Lock()
_home = None


def _openssl(*args):
    if not shutil.which("openssl"):
        raise Skip("needs openssl")
    subprocess.run(["openssl", *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def certificate(*names, rsa=False, days=90, mark=""):
    """(certificate file, key file), self-signed for these names; another `mark` makes another pair."""
    global _home
    wish = (names, rsa, days, mark)
    with _lock:
        if wish in _made:
            return _made[wish]
        _home = _home or tempfile.TemporaryDirectory(prefix="weir-e2e-certs-")
        os.chmod(_home.name, 0o755)
        base = os.path.join(_home.name, str(len(_made)))
        kind = ["rsa:2048"] if rsa else ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        _openssl("req", "-x509", "-newkey", *kind, "-nodes", "-keyout", base + ".key", "-out", base + ".pem", "-days", str(days),
                 "-subj", f"/CN={names[0]}", "-addext", "subjectAltName=" + ",".join("DNS:" + name for name in names))
        os.chmod(base + ".key", 0o644)  # the daemon may have become another user
        _made[wish] = base + ".pem", base + ".key"
        return _made[wish]
