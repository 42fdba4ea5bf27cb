"""A judge behind the OpenAI chat protocol, as vLLM or llama.cpp would serve one: `python serve_judge.py MODEL [PORT]`.

The demo model is too small to judge: asked in both orders it names the first answer every time. So the judge here is
the reward model of ../reward_human, which learned from people's ratings of film reviews: it scores both answers and
names the better one, or says tie where they are close.
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from kleash.rewards.reward_model import RewardModel

PROMPT = "Someone wrote:"
"""What the reward model was trained behind."""
TIE = 0.2
PART = re.compile(r"<(prompt|answer A|answer B) (\w+)>\n(.*?)\n</\1 \2>", re.DOTALL)


def verdict(model: RewardModel, question: str) -> str:
    """A, B or tie, for the message that Kleash sends to a judge."""
    part = {name: text for name, _, text in PART.findall(question)}
    texts = [f" {part['prompt']}{part[answer]}" for answer in ("answer A", "answer B")]
    first, second = model([PROMPT, PROMPT], texts)
    if abs(first - second) < TIE:
        return "tie"
    return "A" if first > second else "B"


class Handler(BaseHTTPRequestHandler):
    """One endpoint: POST /v1/chat/completions."""

    model: RewardModel
    lock = Lock()

    def do_POST(self) -> None:
        """Answer the last message."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            reply = verdict(self.model, request["messages"][-1]["content"])
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": reply}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing of single requests."""


def main() -> None:
    """Serve until Ctrl-C."""
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    Handler.model = RewardModel.from_folder(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"judging at http://127.0.0.1:{port}/v1, Ctrl-C ends it", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
