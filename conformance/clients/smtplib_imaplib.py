"""Python's own clients: smtplib sends (plain, STARTTLS with AUTH, implicit TLS), imaplib reads, flags, moves, deletes.

usage: smtplib_imaplib.py BASE_PORT PASSWORD
"""
import imaplib, smtplib, ssl, sys, time
from email.message import EmailMessage

base, password = int(sys.argv[1]), sys.argv[2]
HOST, ALICE, BOB = "127.0.0.1", "alice@example.test", "bob@example.test"
tls = ssl.create_default_context(); tls.check_hostname = False; tls.verify_mode = ssl.CERT_NONE


def mail(subject, to=ALICE):
    m = EmailMessage()
    m["From"], m["To"], m["Subject"] = "Zoë <zoe@sender.test>", to, subject
    m.set_content("Grüße\n.\n.. dots\nFrom here\n")
    m.add_attachment(bytes(range(256)) * 40, maintype="application", subtype="octet-stream", filename="ü.bin")
    return m


with smtplib.SMTP(HOST, base) as s:
    s.send_message(mail("plain"), "zoe@sender.test", [ALICE])
    try:
        s.sendmail("zoe@sender.test", ["nobody@example.test"], "x"); raise SystemExit("an unknown user was accepted")
    except smtplib.SMTPRecipientsRefused as e:
        assert e.recipients["nobody@example.test"][0] == 550, e.recipients
    s.rset()
    try:
        s.sendmail("zoe@sender.test", ["x@elsewhere.test"], "x"); raise SystemExit("an open relay")
    except smtplib.SMTPRecipientsRefused as e:
        assert e.recipients["x@elsewhere.test"][0] == 550, e.recipients
with smtplib.SMTP(HOST, base + 1) as s:
    s.starttls(context=tls); s.login(BOB, password)
    s.send_message(mail("submitted"), BOB, [ALICE])
with smtplib.SMTP_SSL(HOST, base + 2, context=tls) as s:
    s.login(BOB, password); s.send_message(mail("implicit"), BOB, [ALICE])
with smtplib.SMTP_SSL(HOST, base + 2, context=tls) as s:
    try:
        s.login(BOB, "wrong"); raise SystemExit("a wrong password was accepted")
    except smtplib.SMTPAuthenticationError as e:
        assert e.smtp_code == 535, e
with smtplib.LMTP(HOST, base + 3) as s:
    s.send_message(mail("lmtp"), "zoe@sender.test", [ALICE])  # smtplib reads one reply only, whatever the recipients
with smtplib.SMTP(HOST, base) as s:
    s.send_message(mail("for bob"), "zoe@sender.test", [BOB])

with imaplib.IMAP4(HOST, base + 4) as m:
    assert "STARTTLS" in m.capabilities, m.capabilities
    m.starttls(tls); m.login(ALICE, password)
    assert m.select("INBOX")[1] == [b"4"]
    ok, hits = m.search(None, "SUBJECT", "submitted"); assert ok == "OK" and len(hits[0].split()) == 1, hits
    ok, data = m.fetch(hits[0], "(FLAGS ENVELOPE BODYSTRUCTURE RFC822.SIZE INTERNALDATE)"); assert ok == "OK" and b"submitted" in data[0], data
    ok, data = m.fetch(hits[0], "(RFC822)"); assert ok == "OK" and b"\r\n.. dots\r\n" in data[0][1], data
    assert b"\\Seen" in m.fetch(hits[0], "(FLAGS)")[1][0]
    assert m.store(hits[0], "+FLAGS", r"(\Flagged $Work)")[0] == "OK"
    assert b"$Work" in m.fetch(hits[0], "(FLAGS)")[1][0]
    assert m.create("Projekte/Übung".encode("utf-7").decode().replace("+", "&"))[0] == "OK"
    assert m.copy(hits[0], "Archive")[0] == "OK"
    uid = m.fetch(hits[0], "(UID)")[1][0].split()[-1].rstrip(b")").decode()
    assert m.uid("MOVE", uid, "Trash")[0] == "OK"
    assert m.select("Trash")[1] == [b"1"]
    assert b"$Work" in m.fetch("1", "(FLAGS)")[1][0]
    assert m.store("1", "+FLAGS", r"(\Deleted)")[0] == "OK" and m.expunge()[1] == [b"1"]
    ok, _ = m.append("Drafts", r"(\Draft)", imaplib.Time2Internaldate(time.time()), mail("draft").as_bytes().replace(b"\n", b"\r\n")); assert ok == "OK"
    assert m.select("INBOX")[1] == [b"3"]
    assert m.status("Drafts", "(MESSAGES UNSEEN)")[0] == "OK"
    assert m.list()[0] == "OK" and m.lsub()[0] == "OK" and m.namespace()[0] == "OK"
with imaplib.IMAP4_SSL(HOST, base + 5, ssl_context=tls) as m:
    m.authenticate("PLAIN", lambda _: b"\0" + BOB.encode() + b"\0" + password.encode())
    assert m.select("INBOX", readonly=True)[1] == [b"1"]
print("smtplib and imaplib: all as expected")
