"""jupyter_client with ipykernel: what most code interpreters are built on. One warm kernel for all tables."""

from __future__ import annotations

import subprocess
from typing import Any

from context import Bench
from measure import Skipped


class Jupyter:
    def __init__(self) -> None:
        try:
            from jupyter_client.manager import KernelManager
        except ImportError as missing:
            raise Skipped("jupyter_client and ipykernel are not installed: tools/setup.sh bench") from missing
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def execute(self, code: str) -> str:
        """Runs code and returns what it printed, and its result, when the kernel says that it is idle again."""
        output: list[str] = []

        def collect(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                output.append(content["text"])
            elif message["msg_type"] == "execute_result":
                output.append(content["data"]["text/plain"])

        reply = self.client.execute_interactive(code, timeout=120, output_hook=collect)
        if reply["content"]["status"] != "ok":
            raise RuntimeError(f"ipykernel: {reply['content'].get('evalue')}")
        return "".join(output)

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def kernel(bench: Bench) -> Jupyter:
    return bench.share("jupyter", Jupyter)
