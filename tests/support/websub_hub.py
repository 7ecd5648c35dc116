"""The WebSub hub of flask-websub, run for the tests.

Subscription, verification, signature, delivery and retries are the package's own. It leaves the running of its tasks
to Celery: here they run in this process, on threads that wait for them.

    websub_hub.py PORT DATABASE [options]

With port 0 it takes a free one. It prints one line once it can be asked, {"port": PORT}, and ends with its standard
input. The hub is /hub. POST /fat takes a body with Link rel="self": it goes to the subscribers of that topic as it is.
"""

import argparse
import base64
import json
import logging
import os
import queue
import re
import sqlite3
import sys
import threading
import time

from celery import Celery
from celery.exceptions import Retry
from flask import Flask, request
from flask_websub.hub import Hub, SQLite3HubStorage
from werkzeug.serving import WSGIRequestHandler, make_server

TEN_DAYS = 10 * 24 * 60 * 60

log = logging.getLogger("hub")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("database")
    parser.add_argument("--algorithm", default="sha256", choices=["sha1", "sha256", "sha384", "sha512"])
    parser.add_argument("--least-lease", type=int, default=60, metavar="SECONDS")
    parser.add_argument("--most-lease", type=int, default=31 * 24 * 60 * 60, metavar="SECONDS")
    parser.add_argument("--deny", action="append", default=[], metavar="TOPIC")
    parser.add_argument("--workers", type=int, default=1, help="deliveries at once to one callback")
    parser.add_argument("--retries", type=int, default=3)
    parser.add_argument("--backoff", type=float, default=0.1, metavar="SECONDS", help="at most, before the first retry")
    return parser.parse_args()


class Lane:
    """Tasks that wait for their turn, and the threads that run them. One thread keeps their order: what fails is
    tried again before what comes after it. More let them overtake one another."""

    def __init__(self, threads):
        self.jobs = queue.SimpleQueue()
        self.keeps_order = threads == 1
        for _ in range(threads):
            threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            task, args, retries = self.jobs.get()
            pause = run(task, args, retries)
            while pause is not None and self.keeps_order:
                time.sleep(pause)
                retries += 1
                pause = run(task, args, retries)
            if pause is not None:
                again = threading.Timer(pause, self.jobs.put, [(task, args, retries + 1)])
                again.daemon = True
                again.start()


def run(task, args, retries):
    """Runs a task as Celery would. Returns in how many seconds it wants to be tried again, if it does."""
    task.push_request(args=args, kwargs={}, retries=retries, is_eager=True, called_directly=False)
    try:
        task.run(*args)
    except Retry as retry:
        return retry.when
    except Exception:
        log.exception("%s%r: given up", task.name, args[:2])
    finally:
        task.pop_request()
    return None


class Waiting:
    """A task of the hub, whose `delay` has it wait in the lane for its arguments."""

    def __init__(self, task, lane):
        self.task = task
        self.lane = lane

    def delay(self, *args):
        self.lane(*args).jobs.put((self.task, args, 0))


class Handler(WSGIRequestHandler):
    """Sends what it has at once. Each request has a connection of its own: the server keeps none."""

    disable_nagle_algorithm = True

    def log_request(self, code="-", size="-"):
        log.info("%s: %s", self.requestline, code)


def application(args):
    celery = Celery("hub", broker="memory://")
    settings = {"SIGNATURE_ALGORITHM": args.algorithm, "BACKOFF_BASE": args.backoff, "MAX_ATTEMPTS": args.retries}
    hub = Hub(SQLite3HubStorage(args.database), celery, **settings)
    celery.finalize()

    subscriptions, publications, callbacks = Lane(4), Lane(args.workers), {}
    guard = threading.Lock()

    def lane_to(topic, callback, headers, body):
        with guard:
            if callback not in callbacks:
                callbacks[callback] = Lane(args.workers)
            return callbacks[callback]

    hub.subscribe = Waiting(hub.subscribe, lambda *args: subscriptions)
    hub.unsubscribe = Waiting(hub.unsubscribe, lambda *args: subscriptions)
    hub.send_change = Waiting(hub.send_change, lambda *args: publications)
    hub.make_request_retrying = Waiting(hub.make_request_retrying, lane_to)
    hub.register_validator(lambda callback, topic, *rest: "not this topic" if topic in args.deny else None)

    app = Flask(__name__)
    app.config.update(
        PUBLISH_SUPPORTED=True,
        HUB_MIN_LEASE_SECONDS=args.least_lease,
        HUB_DEFAULT_LEASE_SECONDS=min(max(TEN_DAYS, args.least_lease), args.most_lease),
        HUB_MAX_LEASE_SECONDS=args.most_lease,
    )
    app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))

    @app.route("/fat", methods=["POST"])
    def fat():
        body = request.get_data()
        link = request.headers.get("Link", "")
        topic = re.search(r'<([^>]*)>\s*;\s*rel="self"', link)
        if not topic:
            return 'a Link with rel="self" is missing\n', 400
        if 'rel="hub"' not in link:
            link += f', <{request.host_url}hub>; rel="hub"'
        headers = {"Content-Type": request.content_type or "application/octet-stream", "Link": link}
        content = {"headers": headers, "content": base64.b64encode(body).decode("ascii")}
        hub.send_change_notification.delay(topic.group(1), content)
        return "accepted\n", 202

    return app


def end_with_input():
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    args = options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    # What it asks is on this machine, whatever the environment says.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
    app = application(args)
    # While one connection is open, closing another does not clear up the file and lock it.
    keep = sqlite3.connect(args.database)
    keep.execute("PRAGMA journal_mode=wal")
    keep.execute("SELECT count(*) FROM hub").fetchone()
    server = make_server("127.0.0.1", args.port, app, threaded=True, request_handler=Handler)
    server.daemon_threads = True
    threading.Thread(target=end_with_input, daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


main()
