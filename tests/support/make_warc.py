"""Writes a WARC of captures, for pywb.

Reads from its input a JSON list of [url, media type, datetime, bytes in base64]; its argument is where the WARC goes.
Runs with the Python that pywb is installed for: warcio is there.
"""

import base64
import io
import json
import sys

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter


def main():
    with open(sys.argv[1], "wb") as out:
        writer = WARCWriter(out, gzip=True)
        for url, mime, when, coded in json.load(sys.stdin):
            body = base64.b64decode(coded)
            fields = [("Content-Type", mime), ("Content-Length", str(len(body)))]
            record = writer.create_warc_record(
                url,
                "response",
                payload=io.BytesIO(body),
                http_headers=StatusAndHeaders("200 OK", fields, protocol="HTTP/1.1"),
                warc_headers_dict={"WARC-Date": when},
            )
            writer.write_record(record)


main()
