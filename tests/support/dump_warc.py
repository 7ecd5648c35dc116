"""Writes a Resource Dump as a WARC file, with the package warcio.

Reads from its input a JSON list of resources: url, type, body in base64, and perhaps modified (as HTTP writes it), kind
("response" or "resource"), status, chunked, gzip (the coding of the body). Its arguments are where the file goes and "gzip"
or "plain".
"""

import base64
import gzip
import io
import json
import sys

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter


def chunks(body):
    parts = [body[at:at + 1000] for at in range(0, len(body), 1000)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def write(writer, resource):
    body = base64.b64decode(resource["body"])
    date = {"WARC-Date": "2013-01-03T09:00:00Z"}
    if resource.get("kind") == "resource":
        record = writer.create_warc_record(
            resource["url"], "resource", payload=io.BytesIO(body), warc_content_type=resource["type"], warc_headers_dict=date)
        writer.write_record(record)
        return
    fields = [("Content-Type", resource["type"])]
    if "modified" in resource:
        fields.append(("Last-Modified", resource["modified"]))
    if resource.get("gzip"):
        body = gzip.compress(body, mtime=0)
        fields.append(("Content-Encoding", "gzip"))
    if resource.get("chunked"):
        fields.append(("Transfer-Encoding", "chunked"))
        body = chunks(body)
    else:
        fields.append(("Content-Length", str(len(body))))
    request = writer.create_warc_record(
        resource["url"], "request", http_headers=StatusAndHeaders("GET / HTTP/1.1", [("Host", "x")], is_http_request=True))
    writer.write_record(request)
    record = writer.create_warc_record(
        resource["url"],
        "response",
        payload=io.BytesIO(body),
        http_headers=StatusAndHeaders(resource.get("status", "200 OK"), fields, protocol="HTTP/1.1"),
        warc_headers_dict=date,
    )
    writer.write_record(record)


def main():
    with open(sys.argv[1], "wb") as out:
        writer = WARCWriter(out, gzip=sys.argv[2] == "gzip")
        writer.write_record(writer.create_warcinfo_record("dump.warc", {"software": "warcio"}))
        for resource in json.load(sys.stdin):
            write(writer, resource)


main()
