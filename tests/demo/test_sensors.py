import json
from types import SimpleNamespace

import psutil
import pytest

from edgert.demo import sensors
from edgert.demo.sensors import SensorValue, Snapshot, measurements, name


def values(before: Snapshot, now: Snapshot) -> dict[str, float]:
    return {m.topic: m.value for m in measurements("pi", before, now)}


def test_counters_become_rates_per_second() -> None:
    before = Snapshot(100.0, network_bytes={"eth0": (1000, 50)}, disk_bytes=(0, 4096))
    now = Snapshot(102.0, network_bytes={"eth0": (3000, 50)}, disk_bytes=(512, 8192))
    assert values(before, now) == {
        "machine/pi-eth0/received": 1000.0,
        "machine/pi-eth0/sent": 0.0,
        "machine/pi-disk/read": 256.0,
        "machine/pi-disk/written": 2048.0,
    }


def test_states_need_no_earlier_snapshot() -> None:
    now = Snapshot(5.0, (10.0, 20.0), (1.5e9,), {"soc": 48.5}, memory_used_percent=33.3)
    assert values(Snapshot(4.0), now) == {
        "machine/pi-cpu0/busy": 10.0,
        "machine/pi-cpu1/busy": 20.0,
        "machine/pi-cpu0/frequency": 1.5e9,
        "machine/pi-soc/temperature": 48.5,
        "machine/pi-memory/used": 33.3,
    }


def test_a_counter_that_went_back_gives_no_rate() -> None:
    before = Snapshot(100.0, network_bytes={"eth0": (1000, 50)})
    assert values(before, Snapshot(101.0, network_bytes={"eth0": (10, 60)})) == {}


def test_a_clock_that_stood_or_went_back_gives_no_rate() -> None:
    before = Snapshot(100.0, disk_bytes=(1, 1))
    for time in (100.0, 99.0):
        assert values(before, Snapshot(time, disk_bytes=(2, 2))) == {}


def test_an_interface_that_is_new_waits_for_its_second_reading() -> None:
    assert values(Snapshot(1.0), Snapshot(2.0, network_bytes={"usb0": (1, 2)})) == {}


def test_a_measurement_is_a_senml_pack_of_one_resolvable_record() -> None:
    pack = json.loads(SensorValue("pi-cpu0", "busy", "%", 12.34567, 1_700_000_000.1234).senml())
    assert pack == [{"bn": "pi-cpu0:busy", "bt": 1_700_000_000.123, "u": "%", "v": 12.346}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a/b+c#d", "a-b-c-d"), ("wlan0", "wlan0"), ("/", "unnamed"), ("Grüße", "Gr-e"), (".x.", "x")],
)
def test_names_are_safe_as_topic_level(text: str, expected: str) -> None:
    assert name(text) == expected


def test_temperatures_with_equal_labels_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    chips = {
        "coretemp": [SimpleNamespace(label="Core 0", current=40.0), SimpleNamespace(label="Core 0", current=41.0)],
        "cpu_thermal": [SimpleNamespace(label="", current=50.5)],
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: chips, raising=False)
    assert sensors.read(1.0).celsius == {"coretemp-Core-0": 40.0, "coretemp-Core-0-1": 41.0, "cpu_thermal": 50.5}


def test_what_a_machine_does_not_give_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError("no such sensor")

    monkeypatch.setattr(psutil, "cpu_freq", refuse)
    monkeypatch.setattr(psutil, "sensors_temperatures", refuse, raising=False)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)
    snapshot = sensors.read(1.0)
    assert (snapshot.cpu_hz, dict(snapshot.celsius), snapshot.disk_bytes) == ((), {}, None)
    assert len(snapshot.cpu_busy_percent) == psutil.cpu_count()


def test_this_machine_tells_something() -> None:
    before, now = sensors.read(1.0), sensors.read(2.0)
    found = {m.quantity for m in measurements("here", before, now)}
    assert {"busy", "used"} <= found
