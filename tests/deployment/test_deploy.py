"""The files in `deploy/`: their flags, ports, paths and metrics are those of this version."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from noonmark.cli.app import load_command
from noonmark.server.config import SETTINGS
from noonmark.server.health import PATHS
from tests.embedded.waiting import eventually
from tests.service.server import serving

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
MANIFESTS = {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))}
POD = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
UNIT = (DEPLOY / "noonmark.service").read_text(encoding="utf-8")
RULES = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
STORE = "postgresql://noonmark@postgres/noonmark"


def setting(name):
    """The value of a line of the unit."""
    [value] = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


def instruction(name):
    """The words of the last instruction of this name in the Dockerfile."""
    return json.loads(re.findall(rf"^(?:    )?{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])


COMMANDS = {
    "Dockerfile": instruction("CMD"),
    "node-1": COMPOSE["services"]["node-1"]["command"],
    "node-2": COMPOSE["services"]["node-2"]["command"],
    "kubernetes": POD["containers"][0]["args"],
    "systemd": shlex.split(setting("ExecStart"))[1:],
}


def settings_of(words):
    """The settings of a server that is started with these words; every flag and its value are checked."""
    name, *options = [word.replace("/etc/noonmark/", f"{DEPLOY}/") for word in words]
    assert name == "serve"
    command = load_command("serve")
    with command.make_context("serve", options) as context:
        return command.keywords(context)["options"].load().settings


@pytest.mark.parametrize("where", COMMANDS)
def test_a_server_starts_with_these_flags(where):
    assert settings_of(COMMANDS[where]).port == 8001


def test_the_image_has_another_user_and_a_health_check():
    assert DOCKERFILE.count("\nFROM ") == 2
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    assert instruction("ENTRYPOINT") == ["noonmark"]
    [port, path] = re.findall(r"http://127\.0\.0\.1:(\d+)([\w/]+)", DOCKERFILE)[0]
    assert (int(port), path in PATHS) == (settings_of(COMMANDS["Dockerfile"]).port, True)
    assert str(port) in re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)[0].split()


def test_the_image_copies_what_exists():
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    ]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    assert {f"!{name}" for name in copied} <= set(ignored)


def test_compose_has_two_nodes_on_one_database():
    services = COMPOSE["services"]
    assert {"postgres", "migrate", "node-1", "node-2", "proxy"} == set(services)
    assert services["node-1"] == services["node-2"]
    assert services["migrate"]["command"] == ["migrate"]
    assert services["postgres"]["healthcheck"]
    ports = {int(one.rpartition(":")[2]) for one in services["proxy"]["command"] if one.startswith("--to=")}
    assert ports == {settings_of(COMMANDS["node-1"]).port}
    known = {name for one in SETTINGS.values() for name in one.variables}
    assert set(services["node-1"]["environment"]) <= known


def test_kubernetes_objects_belong_together():
    deployment, service, budget = (MANIFESTS[kind] for kind in ("Deployment", "Service", "PodDisruptionBudget"))
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]


def test_kubernetes_probes_ports_and_times():
    [container] = POD["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    settings = settings_of(container["args"])
    assert ports["http"] == settings.port
    assert MANIFESTS["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [(probe["port"], probe["path"]) for probe in probes] == [
        ("http", "/health/live"),
        ("http", "/health/live"),
        ("http", "/health/ready"),
    ]
    assert {probe["path"] for probe in probes} <= set(PATHS)
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert POD["terminationGracePeriodSeconds"] > settings.grace + pause
    known = {name for one in SETTINGS.values() for name in one.variables}
    assert {one["name"] for one in container["env"]} <= known


def test_kubernetes_runs_it_as_the_user_of_the_image():
    assert POD["securityContext"]["runAsNonRoot"]
    assert f"USER {POD['securityContext']['runAsUser']}:" in DOCKERFILE
    for container in (*POD["containers"], *POD["initContainers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_unit_gives_runs_time_to_finish():
    assert int(setting("TimeoutStopSec")) > settings_of(COMMANDS["systemd"]).grace
    assert settings_of(COMMANDS["systemd"]).store.startswith(f"sqlite:///{setting('WorkingDirectory')}/")
    assert setting("WorkingDirectory") == f"/var/lib/{setting('StateDirectory')}"
    assert (setting("NoNewPrivileges"), setting("ProtectSystem")) == ("yes", "strict")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "noonmark.service"
    here = str(Path(sys.executable).with_name("noonmark"))
    unit.write_text(UNIT.replace("/opt/noonmark/bin/noonmark", here), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "noonmark.service" in line]
    assert (done.returncode, said) == (0, [])


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    """The metrics of a server that has run something, by name, with the labels of their samples."""
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "jobs.py").write_text("def touch():\n    return 1\n", encoding="utf-8")
    with serving(folder, "--store", "sqlite:///noonmark.db", "--function", "touch=jobs:touch") as server:
        document = {
            "trigger": {"type": "interval", "every_seconds": 3600},
            "target": {"target_kind": "function", "function": "touch"},
            "labels": {"metrics": "true"},
        }
        schedule = server.ask("POST", "/schedules", document).json
        assert server.ask("POST", f"/schedules/{schedule['schedule_id']}/run", {}).status == 202
        eventually(lambda: 'outcome="completed"' in server.get("/metrics").text)
        text = server.get("/metrics").text
    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    found = {
        name + suffix: set()
        for name, kind in kinds
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, re.MULTILINE):
        found[name].update(re.findall(r'(\w+)="', labels))
    return found


EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]},
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    },
    "the variable instance": DASHBOARD["templating"]["list"][1]["query"],
}
SCRAPED = {"instance", "job", "le"}
"""Labels that Prometheus adds, or that only buckets have."""


def test_the_metrics_of_the_dashboard_and_the_alerts_exist(metrics):
    for where, expression in EXPRESSIONS.items():
        names = set(re.findall(r"\bnoonmark_\w+", expression))
        assert names or expression.startswith("up{"), where
        assert names <= metrics.keys(), where
        for name in names:
            selected = ",".join(re.findall(rf"{name}{{([^}}]*)}}", expression))
            used = set(re.findall(r"(\w+)=", selected)) - SCRAPED
            assert not metrics[name] or used <= metrics[name], (where, name)


def test_rules_have_a_severity_and_a_sentence():
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"].endswith((".", "it."))
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_panels_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_file_has_a_page():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "guides").glob("*.md"))
    for path in DEPLOY.iterdir():
        assert f"deploy/{path.name}" in pages, path.name
