"""Worker extension by which trimtab watches and steers adaptive verification in a running vLLM.

    VLLM_SERVER_DEV_MODE=1 vllm serve ... --worker-extension-cls trimtab_vllm.Worker

Nothing changes in the engine until a command says so; `trimtab_restore` undoes everything.
"""

from .worker import PROTOCOL, Worker

__all__ = ["PROTOCOL", "Worker"]
