"""imapclient: parses everything strictly; a tour through its API, with IDLE across two connections.

usage: imapclient_tour.py BASE_PORT PASSWORD
"""
import smtplib, sys
from imapclient import IMAPClient
from imapclient.imapclient import MailboxQuotaRoots  # noqa: F401  (a version check: 3.0 or newer)

base, password = int(sys.argv[1]), sys.argv[2]
HOST, ALICE = "127.0.0.1", "alice@example.test"


def connect():
    c = IMAPClient(HOST, base + 4, ssl=False); c.login(ALICE, password); return c


def send(subject):
    with smtplib.SMTP(HOST, base) as s:
        s.sendmail("x@sender.test", [ALICE], f"From: Ann <x@sender.test>\r\nTo: {ALICE}\r\nSubject: {subject}\r\nDate: Tue, 01 Dec 2026 10:00:00 +0000\r\nMessage-ID: <{subject}@sender.test>\r\n\r\nhello {subject}\r\n")


a, b = connect(), connect()
assert {r"\Sent", r"\Drafts", r"\Trash", r"\Junk"} <= {f.decode() for flags, _, _ in a.list_folders() for f in flags}
assert a.find_special_folder(b"\\Sent") == "Sent"
a.select_folder("INBOX"); b.select_folder("INBOX")
b.idle(); send("one"); pushed = b.idle_check(timeout=10); assert any(r[1] == b"EXISTS" for r in pushed), pushed
b.idle_done()
send("two"); a.noop()
uids = a.search(["UNSEEN"]); assert len(uids) == 2, uids
got = a.fetch(uids, ["ENVELOPE", "BODYSTRUCTURE", "FLAGS", "INTERNALDATE", "RFC822.SIZE", "BODY.PEEK[HEADER.FIELDS (SUBJECT DATE)]", "BODY.PEEK[TEXT]<0.5>"])
assert sorted(m[b"ENVELOPE"].subject for m in got.values()) == [b"one", b"two"]
assert all(m[b"BODY[TEXT]<0>"] == b"hello" for m in got.values()), got
assert all(m[b"BODYSTRUCTURE"][:2] == (b"text", b"plain") for m in got.values()), got
a.add_flags(uids, [r"\Flagged", "$Forwarded"]); b.noop()
assert all(b"\\Flagged" in m[b"FLAGS"] for m in b.fetch(uids, ["FLAGS"]).values())
assert a.search(["KEYWORD", "$Forwarded", "FROM", "ann", "SINCE", "1-Jan-2020"]) == uids
a.create_folder("Übung/&und/日本"); assert a.folder_exists("Übung/&und/日本")
a.rename_folder("Übung/&und", "Übung/neu"); assert a.folder_exists("Übung/neu/日本")
a.copy(uids, "Übung/neu/日本"); a.move(uids[:1], "Archive")
assert a.folder_status("Archive")[b"MESSAGES"] == 1
assert b.noop()[1] is not None and len(b.search()) == 1
a.delete_messages(uids[1:]); a.expunge(); b.noop(); assert b.search() == []
a.append("Sent", b"Subject: appended\r\n\r\nx\r\n", flags=[r"\Seen"])
a.select_folder("Sent"); assert a.search(["SEEN"]) != [] and a.get_flags(a.search())
a.unselect_folder(); a.delete_folder("Übung/neu/日本"); assert not a.folder_exists("Übung/neu/日本")
a.logout(); b.logout()
print("imapclient: all as expected")
