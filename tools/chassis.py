#!/usr/bin/env python3
"""tools/chassis.py FOLDER [PORT]: a simulated case for demonstrations, with fans, warm drives and a UPS.

FOLDER/hwmon stands for /sys/class/hwmon: a chip `simfan` with two fans, and sensors of three drives and a processor.
Each drive follows C dT/dt = P - (g0 + g1 * airflow) (T - ambient), ten times as fast as in reality.

On PORT of 127.0.0.1 (34930) a server speaks the part of NUT's protocol that clients need. The UPS `demo` takes its
status from FOLDER/ups, where `echo OB >FOLDER/ups` is a power failure. It ends when FOLDER is removed.
"""

import pathlib
import socketserver
import sys
import threading
import time

AMBIENT, CAPACITY, COOLING = 24.0, 450.0, (0.12, 0.55)
POWER = [5.5, 6.5, 7.5]
SPEEDUP = 10


class Case:
    """The files of the case, and the state of the UPS."""

    def __init__(self, folder):
        self.folder, self.charge = folder, 100.0
        self.celsius = [38.0 for _ in POWER]
        self.chip = self.add("hwmon0", "simfan", {
            "pwm1": "255", "pwm1_enable": "5", "fan1_input": "1500",
            "pwm2": "255", "pwm2_enable": "5", "fan2_input": "1200",
        })
        self.drives = [self.add(f"hwmon{at}", "drivetemp", {"temp1_input": "38000"}, f"{at}:0:0:0")
                       for at in range(1, len(POWER) + 1)]
        self.cpu = self.add("hwmon9", "coretemp", {"temp1_input": "52000"})
        self.status = folder / "ups"
        self.write(self.status, "OL")

    def add(self, number, name, files, device="sim.0"):
        place = self.folder / "hwmon" / number
        place.mkdir(parents=True, exist_ok=True)
        target = self.folder / "devices" / f"{name}.{device}" if name != "drivetemp" else self.folder / "devices" / device
        target.mkdir(parents=True, exist_ok=True)
        link = place / "device"
        if not link.is_symlink():
            link.symlink_to(target)
        for file, text in {"name": name, **files}.items():
            self.write(place / file, text)
        return place

    @staticmethod
    def write(path, text):
        path.write_text(f"{text}\n")

    @staticmethod
    def duty(path):
        text = path.read_text().strip()
        return int(text) / 255 if text.isdigit() else None

    def step(self, seconds):
        airflow = 0.0
        for fan, full in (1, 1500), (2, 1200):
            duty = self.duty(self.chip / f"pwm{fan}")
            if duty is None:  # it is being written
                return
            airflow += duty / 2
            self.write(self.chip / f"fan{fan}_input", round(full * duty))
        for at, power in enumerate(POWER):
            heat = power - (COOLING[0] + COOLING[1] * airflow) * (self.celsius[at] - AMBIENT)
            self.celsius[at] += heat * seconds * SPEEDUP / CAPACITY
            self.write(self.drives[at] / "temp1_input", round(self.celsius[at]) * 1000)
        change = -0.2 if "OB" in self.words() else 0.1
        self.charge = min(100.0, max(0.0, self.charge + change * seconds))

    def words(self):
        return self.status.read_text().strip() or "OL"

    def variables(self):
        status = self.words()
        if "OB" in status and self.charge < 15:
            status += " LB"
        return {"device.mfr": "Poolhouse", "device.model": "Simulated UPS", "ups.status": status, "ups.load": "23",
                "battery.charge": f"{self.charge:.0f}", "battery.runtime": f"{self.charge * 24:.0f}"}


class Nut(socketserver.StreamRequestHandler):
    """NUT's protocol for one UPS without passwords."""

    def handle(self):
        for line in self.rfile:
            words = line.decode(errors="replace").split()
            if words == ["LIST", "VAR", "demo"]:
                lines = [f'VAR demo {name} "{value}"' for name, value in self.server.case.variables().items()]
                answer = ["BEGIN LIST VAR demo", *lines, "END LIST VAR demo"]
            elif words[:1] == ["LOGOUT"]:
                return
            elif words[:2] == ["LIST", "VAR"]:
                answer = ["ERR UNKNOWN-UPS"]
            else:
                answer = ["ERR UNKNOWN-COMMAND"]
            self.wfile.write("".join(f"{text}\n" for text in answer).encode())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    case = Case(folder)
    with Server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 34930), Nut) as server:
        server.case = case
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            while folder.exists():
                case.step(1.0)
                time.sleep(1)
        except FileNotFoundError:
            pass  # the folder was removed


if __name__ == "__main__":
    main()
