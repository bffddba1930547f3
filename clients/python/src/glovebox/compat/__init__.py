"""The programs that Glovebox grew out of, with their own names and arguments, on top of `glovebox.Sandbox`.

| package | what it replaces |
|---|---|
| `glovebox.compat.kernellite` | a pandas kernel that stays: `start_container`, `exec_code`, `pandastool` |
| `glovebox.compat.code_sandbox` | a LangGraph tool with sessions and artifacts: `SessionManager`, `code_sandbox` |
| `glovebox.compat.dolphin` | `DockerSandboxExecutor` and the reasoning loop that uses it |
| `glovebox.compat.clara` | one sandbox for each user of a chat: `SandboxManager`, `SANDBOX_MODE` |
| `glovebox.compat.container` | `SandboxRunner`, `SandboxConfig`, `MountPolicy`: a container for each tool call |

Code written for one of them runs when its import root is changed. Where the original started Docker containers, these
start boxes of Glovebox.
"""
