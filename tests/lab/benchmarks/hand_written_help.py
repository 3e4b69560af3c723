"""A Telegram bot that only answers `/help`: the reference of `bursts.py`. It stores nothing.

Run `python -m tests.lab.benchmarks.hand_written_help` with TELEGRAM_URL and TELEGRAM_TOKEN. During a burst, it shares
only the CPUs with Parley, so its times show the machine's share.
"""

import asyncio
import os

from telegram import Update
from telegram.ext import ApplicationBuilder, CommandHandler, ContextTypes


async def main() -> None:
    """Answer until killed."""
    builder = ApplicationBuilder().token(os.environ["TELEGRAM_TOKEN"])
    application = builder.base_url(os.environ["TELEGRAM_URL"]).build()
    application.add_handler(CommandHandler("help", _help))
    async with application:
        await application.start()
        if application.updater is not None:
            await application.updater.start_polling()
        await asyncio.Event().wait()


async def _help(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
    if update.message is not None:
        await update.message.reply_text("Write to me.")


if __name__ == "__main__":
    asyncio.run(main())
