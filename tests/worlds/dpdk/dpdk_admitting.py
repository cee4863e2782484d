"""ina-dpdk-switch with a job of two workers that is there before its ports are: for devices that replay frames at once.

The process and the test that makes the packets admit the same job: number, life and slots.
"""

import random

import ina.worlds.dpdk.switch
from ina.aggregation.controller.admission import Controller, Job
from ina.p4.runtime.entities import SwitchTarget

SLOTS = 16


def admit(target: SwitchTarget) -> Job:
    controller = Controller(target, 512, chance=random.Random(1))
    job = controller.admit("job", 2, SLOTS)
    for i in range(2):
        controller.attach(job, i, i)
    return job


class Admitting(ina.worlds.dpdk.switch.Running):
    def start(self) -> None:
        admit(self.switch)
        super().start()


if __name__ == "__main__":
    ina.worlds.dpdk.switch.Running = Admitting
    raise SystemExit(ina.worlds.dpdk.switch.main())
